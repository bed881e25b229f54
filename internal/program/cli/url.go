package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// URL declares a URL or an address, checked as by Checked, which may hold a secret: reports, logs and errors show it
// without. It may stand in a file too, which --NAME-file names.
func (g *Group) URL(name, def, placeholder, usage string, valid func(string) error) *redact.URL {
	p := new(redact.URL)
	text := new(string)
	o := stringOption(text, name, def, placeholder, usage, valid)
	set := o.set
	o.set = func(s string) error {
		err := set(s)
		*p = redact.New(*text)
		return err
	}
	o.text = func() string { return p.String() }
	o.value, o.show = func() any { return p.String() }, redact.Address
	g.declare(o)
	g.FromFile(name)
	return p
}

// URLs declares a list of URLs or addresses, as List.
func (g *Group) URLs(name string, def []string, usage string) *[]redact.URL {
	p := new([]redact.URL)
	list := new([]string)
	o := listOption(list, name, def, "LIST", usage, nil)
	set := o.set
	o.set = func(s string) error {
		err := set(s)
		*p = redact.URLs(*list...)
		return err
	}
	o.text = func() string { return redact.Address(strings.Join(*list, ",")) }
	o.value, o.show = func() any { return o.text() }, redact.Address
	g.declare(o)
	return p
}

// RepeatedURL declares URLs as Repeated does, and a file with one on each line.
func (g *Group) RepeatedURL(name, placeholder, usage string, valid func(string) error) *[]redact.URL {
	p := new([]redact.URL)
	o := repeatedOption(new([]string), name, placeholder, usage, valid)
	set := o.set
	o.reset = func() { *p = nil }
	o.set = func(s string) error {
		err := set(s)
		if err == nil {
			*p = append(*p, redact.New(s))
		}
		return err
	}
	shown := func() []string {
		out := make([]string, len(*p))
		for i, u := range *p {
			out[i] = u.String()
		}
		return out
	}
	o.text, o.value, o.show = func() string { return strings.Join(shown(), ",") }, func() any { return shown() },
		redact.Address
	g.declare(o)
	g.FromFile(name)
	return p
}

// FromFile lets the value of a flag of the group stand in a file, which --NAME-file names: what is an argument is in
// every list of processes. A flag that may be repeated takes each line as a value.
func (g *Group) FromFile(name string) {
	o := g.app.lookup(name)
	if o.show == nil { // a secret of no known form: a complaint quotes nothing of it
		o.show = redact.All
	}
	usage := "file that holds --" + name + ", which then is in no list of processes"
	if o.reset != nil {
		usage += "; one on each line"
	}
	path := new(string)
	o.file = stringOption(path, name+"-file", "", "FILE", usage, nil)
	o.file.twin = true
	o.file.show = func(s string) string { return s }
	g.declare(o.file)
}

// parseFiles sets the flags whose values stand in files. Of a value and a file the one that was given with more force
// counts, as with a flag and its variable.
func (a *App) parseFiles() []error {
	var errs []error
	a.each(func(o *option) {
		if o.file == nil || o.file.text() == "" {
			return
		}
		bad := func(err error) {
			where := "--" + o.file.name
			if a.sources[o.file.name] == FromEnv {
				where = EnvName(o.file.name)
			}
			errs = append(errs, &FlagError{Flag: o.file.name, Where: where, Value: quote(o.file.text()), Err: err})
		}
		switch file, direct := a.sources[o.file.name], a.sources[o.name]; {
		case file < direct:
			return
		case file == direct:
			bad(fmt.Errorf("stands beside --%s: keep one of the two", o.name))
			return
		}
		text, err := ReadSecret(o.file.text())
		if err != nil {
			bad(err)
			return
		}
		values := []string{text}
		if o.reset != nil {
			o.reset()
			values = strings.Split(text, "\n")
		}
		a.sources[o.name] = a.sources[o.file.name]
		for _, v := range values {
			var wrong *FlagError
			if err := o.take("", strings.TrimRight(v, "\r")); errors.As(err, &wrong) {
				bad(fmt.Errorf("holds %s, which %w", wrong.Value, wrong.Err))
			}
		}
	})
	return errs
}
