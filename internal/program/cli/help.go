package cli

import (
	"fmt"
	"io"
	"strings"
)

// WriteHelp writes what --help prints: every group, and of every flag its unit, default, range and environment twin.
func (a *App) WriteHelp(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\nUsage:\n", a.Name(), a.summary)
	if a.action != nil || len(a.commands) == 0 {
		usage := a.Name() + " [flags]"
		if a.argsUsage != "" {
			usage += " " + a.argsUsage
		}
		fmt.Fprintf(w, "  %s\n", usage)
	}
	if len(a.commands) > 0 {
		fmt.Fprintf(w, "  %s COMMAND [flags]\n\nCommands (each has a --help of its own):\n", a.Name())
		for _, c := range a.commands {
			fmt.Fprintf(w, "  %-12s %s\n", c.name, c.summary)
		}
	}
	// The program's own groups come first, the general one last.
	for _, g := range append(a.groups[1:len(a.groups):len(a.groups)], a.groups[0]) {
		if len(g.flags) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s:\n", g.title)
		for _, o := range g.flags {
			a.writeFlag(w, o)
		}
	}
	fmt.Fprintf(w,
		"\nA flag beats its environment variable, the variable beats the default; an empty variable counts as not "+
			"set.\n"+
			"SIZE is 64KiB, 8MiB or plain bytes. DURATION is 250ms, 10s or 5m. LIST is a,b. Switches take =on and "+
			"=off.\n")
}

func (a *App) writeFlag(w io.Writer, o *option) {
	head := "--" + o.name
	for short, long := range a.aliases {
		if long == o.name {
			head = "-" + short + ", " + head
		}
	}
	if !o.boolean {
		kind := o.kind
		if o.rule.unit != "" {
			kind = strings.ToUpper(strings.ReplaceAll(o.rule.unit, " ", "_"))
		}
		head += " " + kind
	}
	fmt.Fprintf(w, "  %s\n        %s\n", head, o.usage)
	if o.meta() {
		return
	}
	var facts []string
	switch {
	case o.def != "":
		facts = append(facts, "default "+o.def)
	default:
		facts = append(facts, "no default")
	}
	if o.format != nil {
		if r := o.rule.describe(o.format); r != "" {
			facts = append(facts, r)
		}
	}
	if len(o.allowed) > 0 {
		of := "one of "
		if o.kind == "LIST" {
			of = "any of "
		}
		facts = append(facts, of+strings.Join(o.allowed, " | "))
	}
	if o.boolean {
		facts = append(facts, "on | off")
	}
	fmt.Fprintf(w, "        [%s; %s]\n", strings.Join(facts, "; "), EnvName(o.name))
}
