package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Print writes one run's numbers, raw and steady side by side.
func Print(w io.Writer, run *Run) error {
	var b strings.Builder
	title := run.ID
	if run.Label != "" {
		title = run.Label + " (" + run.ID + ")"
	}
	fmt.Fprintf(&b, "%s\n", title)
	if len(run.Marks) > 0 {
		fmt.Fprintf(&b, "MARKED: %s\n", strings.Join(run.Marks, ", "))
	}
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	line := func(name string, f func(*Window) string) {
		fmt.Fprintf(tw, "%s\t%s\t%s\t\n", name, cell(run.Raw, f), cell(run.Steady, f))
	}
	fmt.Fprintf(tw, "\traw\tsteady\t\n")
	line("window (s)", func(w *Window) string { return fmt.Sprintf("%.1f-%.1f", w.StartS, w.EndS) })
	line("requests", func(w *Window) string { return strconv.Itoa(w.Requests) })
	line("errors", func(w *Window) string { return errorCell(w) })
	line("wrong tokens", func(w *Window) string {
		if w.WrongTokens == nil {
			return "not verified"
		}
		return fmt.Sprintf("%d (%d verified)", *w.WrongTokens, w.Audited)
	})
	line("requests/s", func(w *Window) string { return num(w.RequestsPerS, 1) })
	line("output tokens/s", func(w *Window) string { return num(w.OutputTokensPer, 0) })
	if run.Raw != nil && run.Raw.GoodRequests != nil {
		line("goodput requests/s", func(w *Window) string { return num(w.GoodputRequests, 1) })
	}
	for _, d := range []struct {
		name string
		of   func(*Window) *Dist
	}{
		{"TTFT", func(w *Window) *Dist { return w.TTFT }}, {"ITL", func(w *Window) *Dist { return w.ITL }},
		{"chunk gap", func(w *Window) *Dist { return w.ICL }}, {"latency", func(w *Window) *Dist { return w.Latency }},
		{"effective latency", func(w *Window) *Dist { return w.EffectiveLatency }},
	} {
		line(d.name+" p50/p90/p99 (ms)", func(w *Window) string {
			v := d.of(w)
			if v == nil {
				return "-"
			}
			return fmt.Sprintf("%s / %s / %s", ms(v.P50), ms(v.P90), ms(v.P99))
		})
	}
	line("frontend CPU (ms/request)", func(w *Window) string { return num(w.FrontendCPU, 3) })
	line("worker CPU (ms/request)", func(w *Window) string { return num(w.WorkerCPU, 3) })
	line("load generator CPU (ms/request)", func(w *Window) string { return num(w.LoadgenCPU, 3) })
	line("machine busy", func(w *Window) string {
		if w.MachineBusy == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f%%", *w.MachineBusy*100)
	})
	if err := tw.Flush(); err != nil {
		return err
	}
	if p := run.Plane; p != nil {
		fmt.Fprintf(&b,
			"plane: %s records, %s reads, %s writes, %s records a write, %s wakes, ends %s, "+
				"takeovers %s, by plane %s\n",
			count(p.Records), count(p.Reads),
			count(p.Writes), num(p.RecordsPerWrite, 1), count(p.Wakes), counts(p.StreamsEnded), count(p.Takeovers),
			counts(p.PlaneRecords))
	}
	if u := run.UDP; u != nil {
		fmt.Fprintf(&b,
			"udp: %s datagrams in, %s out (%s a token, %s in the steady window), drops: %s RcvbufErrors, %s of our "+
				"sockets, %s in the library; %s packets lost\n", count(u.InDatagrams),
			count(u.OutDatagrams), num(u.DatagramsPerToken, 3), num(u.SteadyDatagramsPerToken, 4),
			count(u.RcvbufErrors), count(u.SocketDrops), count(u.LibraryDrops), count(u.PacketsLost))
	}
	if run.Holders != nil {
		fmt.Fprintf(&b, "holders: %d (%s by the reference's rule)\n", *run.Holders, optInt(run.HoldersReference))
	}
	fmt.Fprintf(&b, "load generator: %s client, schedule delay p99 %s ms\n", orDash(run.Client.Kind),
		num(run.Client.ScheduleDelayP99, 2))
	for i, e := range run.Errors {
		if i == saidLines {
			fmt.Fprintf(&b, "errors: %d more kinds are in %s\n", len(run.Errors)-i, RunFile)
			break
		}
		status := ""
		if e.Status != 0 {
			status = fmt.Sprintf(", status %d", e.Status)
		}
		fmt.Fprintf(&b, "errors: %d %s (%s%s)", e.Count, e.Type, e.End, status)
		if e.Message != "" {
			fmt.Fprintf(&b, ": %q", e.Message)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// saidLines is how many kinds of failures stand below the table.
const saidLines = 5

// PrintArms writes one line a run, for runs that are to be compared. name gives each run's name. Latencies and rates
// are those of the steady window where there is one (else raw, marked with *); errors, wrong tokens and drops are those
// of the whole run.
func PrintArms(w io.Writer, runs []*Run, name func(i int) string) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', tabwriter.AlignRight)
	gaps := slices.ContainsFunc(runs, func(r *Run) bool { return r.Marked(MarkBundled) }) // ITL alone would say little
	beside := func(cells string) string {
		if gaps {
			return cells
		}
		return ""
	}
	fmt.Fprintln(tw, "run\tholders\trequests/s\tTTFT p50 (ms)\tTTFT p99\tITL p50\tITL p99\t"+
		beside("chunk gap p50\tchunk gap p99\t")+
		"frontend CPU (ms/req)\tworker CPU\tdatagrams/token\tdrops\terrors\twrong\tmarks\t")
	rawUsed := false
	for i, r := range runs {
		win := r.Best()
		star := ""
		if win != nil && win != r.Steady {
			star, rawUsed = "*", true
		}
		d := func(of func(*Window) *Dist, stat func(*Dist) float64) string {
			if win == nil || of(win) == nil {
				return "-"
			}
			return ms(stat(of(win)))
		}
		ttft, itl, icl := distMetrics["ttft"], distMetrics["itl"], distMetrics["icl"]
		drops, perToken := "-", "-"
		if u := r.UDP; u != nil {
			drops, perToken = count(u.RcvbufErrors), num(u.DatagramsPerToken, 3)
		}
		wrong := "-"
		if r.Raw != nil && r.Raw.WrongTokens != nil {
			wrong = strconv.FormatInt(*r.Raw.WrongTokens, 10)
		}
		fmt.Fprintf(tw, "%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name(i), star,
			optInt(r.Holders),
			cell(win, func(w *Window) string { return num(w.RequestsPerS, 1) }),
			d(ttft, distStats["p50"]), d(ttft, distStats["p99"]), d(itl, distStats["p50"]), d(itl, distStats["p99"]),
			beside(d(icl, distStats["p50"])+"\t"+d(icl, distStats["p99"])+"\t"),
			cell(win, func(w *Window) string { return num(w.FrontendCPU, 3) }),
			cell(win, func(w *Window) string { return num(w.WorkerCPU, 3) }),
			perToken, drops, cell(r.Raw, errorCell), wrong, orDash(strings.Join(r.Marks, ", ")))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if rawUsed {
		b.WriteString("* no steady window: figures of all measured requests\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func cell(w *Window, f func(*Window) string) string {
	if w == nil {
		return "-"
	}
	return f(w)
}

func errorCell(w *Window) string {
	if w.Errors == 0 {
		return "0"
	}
	var parts []string
	for _, k := range keys(w.ErrorsByType) {
		parts = append(parts, fmt.Sprintf("%s %d", k, w.ErrorsByType[k]))
	}
	return fmt.Sprintf("%d (%s)", w.Errors, strings.Join(parts, ", "))
}

func num(p *float64, prec int) string {
	if p == nil {
		return "-"
	}
	return strconv.FormatFloat(*p, 'f', prec, 64)
}

func ms(v float64) string {
	switch {
	case v >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func count(p *int64) string {
	if p == nil {
		return "-"
	}
	return strconv.FormatInt(*p, 10)
}

func optInt(p *int) string {
	if p == nil {
		return "-"
	}
	return strconv.Itoa(*p)
}

func counts(m map[string]int64) string {
	var parts []string
	for _, k := range keys(m) {
		if m[k] != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
		}
	}
	return orDash(strings.Join(parts, ", "))
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
