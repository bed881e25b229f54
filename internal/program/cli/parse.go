package cli

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Parse sets the flags from args and the environment. Run calls it. It returns nil or a *UsageError that joins every
// complaint; package flag's own Parse would stop at the first one.
func (a *App) Parse(args []string) error {
	var errs []error
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			a.args = append(a.args, args...)
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			a.args = append(a.args, arg)
			continue
		}
		used, err := a.parseFlag(arg, args)
		if err != nil {
			errs = append(errs, err)
		}
		args = args[used:]
	}
	errs = append(errs, a.parseEnv()...)
	errs = append(errs, a.parseFiles()...)
	for _, arg := range a.args {
		switch {
		case a.argsUsage == "":
			errs = append(errs, a.unexpected(arg))
		case !utf8.ValidString(arg):
			errs = append(errs, &FlagError{Where: quoteArg(arg), Err: errNotUTF8})
		}
	}
	for _, check := range a.checks {
		if err := check(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		for _, check := range a.last {
			if err := check(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return &UsageError{Name: a.Name(), Err: errors.Join(errs...)}
}

// parseFlag sets one flag from arg and, when its value stands apart, from the first of rest; used says whether it does.
func (a *App) parseFlag(arg string, rest []string) (used int, err error) {
	where, value, hasValue := strings.Cut(arg, "=")
	name := strings.TrimPrefix(strings.TrimPrefix(where, "-"), "-")
	o := a.lookup(name)
	if o == nil {
		// What follows is most likely the unknown flag's value: complaining about it too would be noise.
		if !hasValue && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && a.argsUsage == "" {
			used = 1
		}
		return used, &FlagError{Where: quoteArg(where), Err: fmt.Errorf("there is no such flag%s",
			didYouMean(a.nearestFlag(name)))}
	}
	switch {
	case hasValue:
	case o.boolean:
		value = "on"
		// "--urgent off": where no other arguments are taken, such a word can only be meant as the value.
		if len(rest) > 0 && a.argsUsage == "" {
			if _, ok := parseBool(rest[0]); ok {
				value, used = rest[0], 1
			}
		}
	case len(rest) == 0:
		return 0, &FlagError{Flag: o.name, Where: where, Err: fmt.Errorf("needs a value: %s %s", where, o.kind)}
	case a.isFlag(rest[0]):
		return 0, &FlagError{Flag: o.name, Where: where,
			Err: fmt.Errorf("needs a value, but %s follows: %s %s (or %s=VALUE)", quoteArg(rest[0]), where, o.kind,
				where)}
	default:
		value, used = rest[0], 1
	}
	if o.reset != nil && a.sources[o.name] == FromDefault {
		o.reset()
	}
	a.sources[o.name] = FromFlag // even when the value is bad: the environment must not stand in for it
	return used, o.take(where, value)
}

// errNotUTF8 is what is wrong with text that metrics, reports and records cannot hold.
var errNotUTF8 = errors.New("is not UTF-8 text: write it in UTF-8")

// take sets the value that stands at where. The error is a *FlagError, or nil.
func (o *option) take(where, value string) error {
	err := errNotUTF8
	if utf8.ValidString(value) {
		err = o.set(value)
	}
	if err != nil {
		show := o.show
		if show == nil {
			show = redact.Text
		}
		return &FlagError{Flag: o.name, Where: where, Value: quote(show(value)), Err: err}
	}
	return nil
}

// isFlag says whether arg is a declared flag and not a value that begins with a dash.
func (a *App) isFlag(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
	return a.lookup(name) != nil
}

func (a *App) unexpected(arg string) error {
	for _, c := range a.commands {
		if c.name == arg {
			return &FlagError{Where: arg, Err: fmt.Errorf("the command comes first: %s %s [flags]", a.Name(), arg)}
		}
	}
	fix := "only flags are taken"
	if len(a.commands) > 0 {
		fix = "is not a command: use " + strings.Join(a.commandNames(), ", ") +
			didYouMean(nearest(arg, a.commandNames()))
	} else if a.lookup(arg) != nil {
		fix = "flags begin with two dashes: --" + arg
	}
	return &FlagError{Where: quoteArg(arg), Err: errors.New(fix)}
}

func (a *App) needCommand() error {
	return fmt.Errorf("needs a command: %s", strings.Join(a.commandNames(), ", "))
}

func (a *App) commandNames() []string {
	var names []string
	for _, c := range a.commands {
		names = append(names, c.name)
	}
	return names
}

// quoteArg quotes an argument of which it is not known what it was meant to be.
func quoteArg(s string) string { return quote(redact.Args([]string{s})[0]) }

// quote makes empty and spaced values, and what is not text, visible.
func quote(s string) string {
	if s == "" || strings.ContainsAny(s, " \t\n\r\"'") || !utf8.ValidString(s) {
		return fmt.Sprintf("%q", s)
	}
	return s
}
