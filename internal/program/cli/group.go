package cli

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Group declares flags under a heading of --help. Every method declares one flag and returns where its value will be
// once the command line has been parsed; until then it holds the default.
type Group struct {
	app   *App
	title string
	flags []*option
}

// Names are the long names of the group's flags, in order.
func (g *Group) Names() []string {
	names := make([]string, len(g.flags))
	for i, o := range g.flags {
		names[i] = o.name
	}
	return names
}

// declare registers an option and checks that its default obeys its own rule.
func (g *Group) declare(o *option) {
	if err := o.set(o.def); err != nil && o.def != "" {
		panic(fmt.Sprintf("cli: default of --%s: %q %v", o.name, o.def, err))
	}
	if g.app.aliases[o.name] != "" {
		panic("cli: -" + o.name + " is declared twice")
	}
	if o.reset != nil {
		o.reset()
	}
	g.app.flags.Var(o, o.name, o.usage)
	g.flags = append(g.flags, o)
}

// Int declares a whole number.
func (g *Group) Int(name string, def int, rule Rule, usage string) *int {
	p := new(int)
	format := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	g.declare(&option{
		name: name, usage: usage, def: strconv.Itoa(def), kind: "N", rule: rule, format: format,
		set: func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return fmt.Errorf("is not a whole number%s", orUse(rule.describe(format)))
			}
			if err := rule.check(float64(n), format); err != nil {
				return err
			}
			*p = n
			return nil
		},
		text: func() string { return strconv.Itoa(*p) }, value: func() any { return *p },
	})
	return p
}

// Float declares a number with a fraction.
func (g *Group) Float(name string, def float64, rule Rule, usage string) *float64 {
	p := new(float64)
	format := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	g.declare(&option{
		name: name, usage: usage, def: format(def), kind: "NUMBER", rule: rule, format: format,
		set: func(s string) error {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || v-v != 0 { // NaN and infinities are numbers to strconv, but no setting means them
				return fmt.Errorf("is not a number%s", orUse(rule.describe(format)))
			}
			if err := rule.check(v, format); err != nil {
				return err
			}
			*p = v
			return nil
		},
		text: func() string { return format(*p) }, value: func() any { return *p },
	})
	return p
}

// Size declares a number of bytes: 8MiB, 64KiB or plain bytes.
func (g *Group) Size(name string, def int64, rule Rule, usage string) *int64 {
	p := new(int64)
	rule = rule.notNegative()
	format := func(v float64) string { return FormatSize(int64(v)) }
	g.declare(&option{
		name: name, usage: usage, def: FormatSize(def), kind: "SIZE", rule: rule, format: format,
		set: func(s string) error {
			n, err := ParseSize(s)
			if err != nil {
				return err
			}
			if err := rule.check(float64(n), format); err != nil {
				return err
			}
			*p = n
			return nil
		},
		text: func() string { return FormatSize(*p) }, value: func() any { return *p },
	})
	return p
}

// Duration declares a time span: 250ms, 10s.
func (g *Group) Duration(name string, def time.Duration, rule Rule, usage string) *time.Duration {
	p := new(time.Duration)
	rule = rule.notNegative()
	format := func(v float64) string { return FormatDuration(time.Duration(v)) }
	g.declare(&option{
		name: name, usage: usage, def: FormatDuration(def), kind: "DURATION", rule: rule, format: format,
		set: func(s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				if _, e := strconv.ParseFloat(s, 64); e == nil {
					return fmt.Errorf("has no unit: write %sms, %ss or %sm", s, s, s)
				}
				return fmt.Errorf("is not a duration: write it like 250ms, 10s or 5m")
			}
			if err := rule.check(float64(d), format); err != nil {
				return err
			}
			*p = d
			return nil
		},
		text: func() string { return FormatDuration(*p) }, value: func() any { return FormatDuration(*p) },
	})
	return p
}

// String declares free text.
func (g *Group) String(name, def, usage string) *string {
	p := new(string)
	g.declare(stringOption(p, name, def, "TEXT", usage, nil))
	return p
}

// Checked declares text that valid must accept. valid returns what is wrong and what would be right, without naming
// flag or value: "is not a URL: write it like http://127.0.0.1:8000". An empty default is not checked.
func (g *Group) Checked(name, def, placeholder, usage string, valid func(string) error) *string {
	p := new(string)
	g.declare(stringOption(p, name, def, placeholder, usage, valid))
	return p
}

// Addr declares a listening address, host:port. The host may be empty (all interfaces), port 0 lets the kernel choose.
func (g *Group) Addr(name, def, usage string) *string {
	return g.Address(name, def, "HOST:PORT", usage, validAddr)
}

// Address declares a host, or an address of another kind than Addr, checked as by Checked.
func (g *Group) Address(name, def, placeholder, usage string, valid func(string) error) *string {
	p := new(string)
	o := stringOption(p, name, def, placeholder, usage, valid)
	o.show = redact.Address
	g.declare(o)
	return p
}

// Enum declares one of several words.
func (g *Group) Enum(name, def string, allowed []string, usage string) *string {
	p := new(string)
	o := stringOption(p, name, def, "WORD", usage, func(s string) error { return oneOf(s, allowed) })
	o.allowed = allowed
	g.declare(o)
	return p
}

// Bool declares a switch: --urgent, --urgent=off, LANEWAY_URGENT=off.
func (g *Group) Bool(name string, def bool, usage string) *bool {
	p := new(bool)
	g.declare(&option{
		name: name, usage: usage, def: onOff(def), boolean: true,
		set: func(s string) error {
			v, ok := parseBool(s)
			if !ok {
				return fmt.Errorf("is not a switch: use on or off")
			}
			*p = v
			return nil
		},
		text: func() string { return onOff(*p) }, value: func() any { return *p },
	})
	return p
}

// List declares words separated by commas. The default may be empty.
func (g *Group) List(name string, def []string, usage string) *[]string {
	p := new([]string)
	g.declare(listOption(p, name, def, "LIST", usage, nil))
	return p
}

// EnumList declares words out of allowed, separated by commas, in the order of preference, each at most once.
func (g *Group) EnumList(name string, def, allowed []string, usage string) *[]string {
	p := new([]string)
	o := listOption(p, name, def, "LIST", usage, func(items []string) error {
		for i, s := range items {
			if err := oneOf(s, allowed); err != nil {
				return fmt.Errorf("%q %w", s, err)
			}
			if slices.Contains(items[:i], s) {
				return fmt.Errorf("names %q twice: name each once", s)
			}
		}
		return nil
	})
	o.allowed = allowed
	g.declare(o)
	return p
}

// Repeated declares a flag that may be given several times; each time adds one value, which may hold commas. Its
// environment twin holds one value.
func (g *Group) Repeated(name, placeholder, usage string, valid func(string) error) *[]string {
	p := new([]string)
	g.declare(repeatedOption(p, name, placeholder, usage, valid))
	return p
}

func repeatedOption(p *[]string, name, placeholder, usage string, valid func(string) error) *option {
	return &option{
		name: name, usage: usage + " (may be repeated)", kind: placeholder,
		reset: func() { *p = nil },
		set: func(s string) error {
			if s == "" {
				return fmt.Errorf("is empty: give a value")
			}
			if valid != nil {
				if err := valid(s); err != nil {
					return err
				}
			}
			*p = append(*p, s)
			return nil
		},
		text:  func() string { return redact.Text(strings.Join(*p, ",")) },
		value: func() any { return texts(*p) },
	}
}

func stringOption(p *string, name, def, kind, usage string, valid func(string) error) *option {
	return &option{
		name: name, usage: usage, def: def, kind: kind,
		set: func(s string) error {
			if valid != nil && !(s == "" && def == "") {
				if err := valid(s); err != nil {
					return err
				}
			}
			*p = s
			return nil
		},
		text: func() string { return redact.Text(*p) }, value: func() any { return redact.Text(*p) },
	}
}

func listOption(p *[]string, name string, def []string, kind, usage string, valid func([]string) error) *option {
	return &option{
		name: name, usage: usage, def: strings.Join(def, ","), kind: kind,
		set: func(s string) error {
			if s == "" && len(def) == 0 {
				*p = nil
				return nil
			}
			items := strings.Split(s, ",")
			for i := range items {
				if items[i] = strings.TrimSpace(items[i]); items[i] == "" {
					return fmt.Errorf("has an empty item: write it like a,b")
				}
			}
			if valid != nil {
				if err := valid(items); err != nil {
					return err
				}
			}
			*p = items
			return nil
		},
		text:  func() string { return redact.Text(strings.Join(*p, ",")) },
		value: func() any { return redact.Text(strings.Join(*p, ",")) },
	}
}

func validAddr(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil || strings.Contains(s, "@") {
		return fmt.Errorf("is not host:port: write it like :9090, 127.0.0.1:9090 or [::1]:9090")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("has the port %q: use a number from 0 to 65535", port)
	}
	return nil
}

func oneOf(s string, allowed []string) error {
	if slices.Contains(allowed, s) {
		return nil
	}
	return fmt.Errorf("is not known: use %s%s", strings.Join(allowed, ", "), didYouMean(nearest(s, allowed)))
}

func orUse(s string) string {
	if s == "" {
		return ""
	}
	return ": use " + s
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func parseBool(s string) (v, ok bool) {
	switch strings.ToLower(s) {
	case "on", "true", "yes", "1":
		return true, true
	case "off", "false", "no", "0":
		return false, true
	}
	return false, false
}

func texts(items []string) []string {
	out := make([]string, len(items))
	for i, s := range items {
		out[i] = redact.Text(s)
	}
	return out
}
