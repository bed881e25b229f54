package cli

import (
	"flag"
	"strings"
)

// Source says where a value comes from.
type Source int

const (
	FromDefault Source = iota
	FromEnv
	FromFlag
)

// option is one declared flag. It is the flag.Value of its name.
type option struct {
	name, usage, def string
	kind             string // what help writes for the value: N, SIZE, ...
	rule             Rule
	format           func(float64) string
	allowed          []string
	boolean          bool
	show             func(string) string // a value as a complaint may quote it; nil = redact.Text
	file             *option             // the flag that names a file with the value; nil = none
	twin             bool                // names the file of another flag

	set   func(string) error
	reset func() // forgets what earlier calls of set added
	text  func() string
	value func() any
}

var _ flag.Value = (*option)(nil)

// Set reads the value.
func (o *option) Set(s string) error { return o.set(s) }

// String writes the value as Set reads it.
func (o *option) String() string {
	if o == nil || o.text == nil { // package flag calls String on zero values
		return ""
	}
	return o.text()
}

// IsBoolFlag tells package flag that the value may be left out.
func (o *option) IsBoolFlag() bool { return o.boolean }

// meta says whether the flag is about the program and not about the run.
func (o *option) meta() bool {
	return o.name == "help" || o.name == "version" || o.name == checkConfigFlag
}

// checkConfigFlag is declared for every program and command.
const checkConfigFlag = "check-config"

// Source says where the value of a flag comes from.
func (a *App) Source(name string) Source { return a.sources[name] }

// Values are all flags in force, defaults included, by long name, written as the flags take them. Secrets in URLs
// are hidden.
func (a *App) Values() map[string]string {
	out := make(map[string]string)
	a.settings(func(o *option) { out[o.name] = o.text() })
	return out
}

// Config is Values for a JSON report: underscores in the names, numbers as numbers, sizes in bytes, switches as
// booleans, durations and lists as text.
func (a *App) Config() map[string]any {
	out := make(map[string]any)
	a.settings(func(o *option) { out[strings.ReplaceAll(o.name, "-", "_")] = o.value() })
	return out
}

func (a *App) each(f func(*option)) {
	for _, g := range a.groups {
		for _, o := range g.flags {
			if !o.meta() {
				f(o)
			}
		}
	}
}

// settings calls f for each flag that is a setting of the run: where a value was read is not.
func (a *App) settings(f func(*option)) {
	a.each(func(o *option) {
		if !o.twin {
			f(o)
		}
	})
}

// lookup finds a flag by its long or short name.
func (a *App) lookup(name string) *option {
	if long := a.aliases[name]; long != "" {
		name = long
	}
	f := a.flags.Lookup(name)
	if f == nil {
		return nil
	}
	return f.Value.(*option)
}
