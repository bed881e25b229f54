package analysis

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Line is one line of the table: the runs of one configuration with one number of holders.
type Line struct {
	Config  string
	Holders int // -1 when the responses do not name their worker process
	Runs    []*Run
}

// Table is what came out of a set of runs.
type Table struct {
	Lines    []Line
	SetAside []*Run // with the reasons in Aside
	Window   string // that rates and latencies are from
	all      []*Run
}

// Analyze reads the runs and sorts them into lines. It returns a *NotComparableError beside the table when every run
// was set aside.
func Analyze(ctx context.Context, dirs []string, opts Options) (*Table, error) {
	runs, err := Load(ctx, dirs, opts)
	if err != nil {
		return nil, err
	}
	t := tabulate(runs)
	t.Window = opts.withDefaults().Window
	if len(t.Lines) == 0 {
		return t, &NotComparableError{Reasons: []string{fmt.Sprintf("all %d runs were set aside", len(runs))}}
	}
	return t, nil
}

// tabulate makes the lines. With several configurations, a number of holders that only one of them has compares with
// nothing: its runs are set aside.
func tabulate(runs []*Run) *Table {
	t := &Table{all: runs}
	type id struct {
		config  string
		holders int
	}
	lines := map[id]*Line{}
	configs := map[string]bool{}
	for _, r := range runs {
		if len(r.Aside) > 0 {
			t.SetAside = append(t.SetAside, r)
			continue
		}
		k := id{r.Config.Name, r.Holders}
		if lines[k] == nil {
			lines[k] = &Line{Config: k.config, Holders: k.holders}
		}
		lines[k].Runs = append(lines[k].Runs, r)
		configs[k.config] = true
	}
	partners := map[int]int{}
	for k := range lines {
		partners[k.holders]++
	}
	for k, l := range lines {
		if len(configs) > 1 && partners[k.holders] == 1 {
			for _, r := range l.Runs {
				r.Aside = append(r.Aside, fmt.Sprintf("no partner: no run of another configuration has %s",
					holdersText(k.holders)))
				t.SetAside = append(t.SetAside, r)
			}
			continue
		}
		t.Lines = append(t.Lines, *l)
	}
	slices.SortFunc(t.Lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Holders, b.Holders), cmp.Compare(a.Config, b.Config))
	})
	slices.SortStableFunc(t.SetAside, func(a, b *Run) int { return cmp.Compare(a.Dir, b.Dir) })
	return t
}

func holdersText(n int) string {
	switch n {
	case -1:
		return "an unknown number of holders"
	case 1:
		return "1 holder"
	}
	return strconv.Itoa(n) + " holders"
}

// Print writes the table, what to know of the runs in it, and the runs that were set aside.
func (t *Table) Print(w io.Writer) error {
	var b strings.Builder
	if len(t.Lines) > 0 {
		var used []*Run
		for _, l := range t.Lines {
			used = append(used, l.Runs...)
		}
		metrics := beside(tableMetrics, used)
		tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(tw, "configuration\tholders\tby the reference\truns\t")
		for _, m := range metrics {
			fmt.Fprint(tw, header(m), "\t")
		}
		fmt.Fprintln(tw)
		for _, l := range t.Lines {
			holders := strconv.Itoa(l.Holders)
			if l.Holders < 0 {
				holders = "?"
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t", l.Config, holders,
				rangeOf(metricReference, l.Runs).text(metricReference), len(l.Runs))
			for _, m := range metrics {
				fmt.Fprint(tw, rangeOf(m, l.Runs).text(m), "\t")
			}
			fmt.Fprintln(tw)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(&b,
			"Ranges over the runs, no averages. Rates, latencies and CPU are of the %s window; drops (RcvbufErrors "+
				"of the frontend's host) and errors of the whole run.\n"+
				"Holders by our rule, and by the reference's, which has no lower limit.\n", t.Window)
		if t.Window == WindowRaw {
			b.WriteString("RAW: these figures hold the opening burst; high percentiles may be nothing else.\n")
		}
		t.printRuns(&b)
		t.printConfigs(&b)
	}
	t.printNotes(&b)
	printAside(&b, t.SetAside)
	_, err := io.WriteString(w, b.String())
	return err
}

func header(m Metric) string {
	if m.Unit == "" {
		return m.Name
	}
	return m.Name + " (" + m.Unit + ")"
}

func (t *Table) printRuns(b *strings.Builder) {
	b.WriteString("\nRuns\n")
	for _, l := range t.Lines {
		fmt.Fprintf(b, "  %s, %s: %s\n", l.Config, holdersText(l.Holders), names(l.Runs))
	}
}

// printConfigs says in what the configurations differ: a difference between lines may come from any of it.
func (t *Table) printConfigs(b *strings.Builder) {
	byName := map[string]Config{}
	for _, l := range t.Lines {
		byName[l.Config] = l.Runs[0].Config
	}
	if len(byName) < 2 {
		return
	}
	var order []string
	var all []Config
	for _, l := range t.Lines {
		if !contains(order, l.Config) {
			order, all = append(order, l.Config), append(all, byName[l.Config])
		}
	}
	b.WriteString("\nThe configurations differ in\n")
	for _, k := range differing(all) {
		fmt.Fprintf(b, "  %s:", strings.Replace(k, "env.", "environment ", 1))
		for i, c := range all {
			if i > 0 {
				b.WriteByte(';')
			}
			fmt.Fprintf(b, " %s (%s)", c.value(k), order[i])
		}
		b.WriteByte('\n')
	}
}

// printNotes lists what to know of the runs that are used, each note once with its runs.
func (t *Table) printNotes(b *strings.Builder) {
	var used []*Run
	for _, l := range t.Lines {
		used = append(used, l.Runs...)
	}
	printNotes(b, used)
}

func printNotes(b *strings.Builder, runs []*Run) {
	by := map[string][]*Run{}
	var order []string
	for _, r := range runs {
		for _, n := range r.Notes {
			if by[n] == nil {
				order = append(order, n)
			}
			by[n] = append(by[n], r)
		}
	}
	if len(order) == 0 {
		return
	}
	b.WriteString("\nTo know\n")
	for _, n := range order {
		fmt.Fprintf(b, "  %s: %s\n", names(by[n]), n)
	}
}

func printAside(b *strings.Builder, runs []*Run) {
	if len(runs) == 0 {
		return
	}
	fmt.Fprintf(b, "\nSet aside: %d\n", len(runs))
	for _, r := range runs {
		holders := ""
		if r.Holders >= 0 {
			holders = " (" + holdersText(r.Holders) + ")"
		}
		for _, why := range r.Aside {
			fmt.Fprintf(b, "  %s%s: %s\n", r.Dir, holders, why)
		}
	}
}

func names(runs []*Run) string {
	out := make([]string, len(runs))
	for i, r := range runs {
		out[i] = r.Name
	}
	return strings.Join(out, ", ")
}
