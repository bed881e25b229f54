package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"

	"github.com/laneway-ai/laneway/internal/program/chart"
)

// most bars a picture has; more are no reading.
const mostBars = 40

// plots draws the percentile curves and what happened over time.
func (p *page) plots(run *Run, c *curves, series []Second) {
	curve := func(name string, raw, steady []float64) {
		plot := chart.Plot{Title: name + " by percentile", XLabel: "share of requests at or below", YLabel: "ms",
			X: chart.Nines}
		if c.haveSteady {
			plot.Series = append(plot.Series, chart.Series{Name: "steady", Points: Curve(steady)})
		}
		plot.Series = append(plot.Series, chart.Series{Name: "raw", Points: Curve(raw), Color: 1, Dash: c.haveSteady})
		// One outlier would press everything else onto the floor of a linear axis.
		if n := len(raw); n > 0 && raw[0] > 0 && raw[n-1] > 20*Quantile(raw, .5) {
			plot.Y = chart.Log
		}
		p.Curves = append(p.Curves, template.HTML(plot.SVG()))
	}
	curve("TTFT", c.raw.ttft, c.steady.ttft)
	curve("ITL", c.raw.itl, c.steady.itl)
	if len(series) == 0 {
		p.TimeSaid = "There is no timeseries.csv in this folder."
		return
	}
	var bands []chart.Band
	p.TimeSaid = "There was no steady window."
	if w := run.Steady; w != nil {
		bands = []chart.Band{{From: w.StartS, To: w.EndS, Name: "steady"}}
		p.TimeSaid = "The steady window is shaded."
	}
	bins := binned(series, 400)
	if bins[0].seconds > 1 {
		p.TimeSaid += fmt.Sprintf(" Each point is %d s.", bins[0].seconds)
	}
	line := func(name string, color int, of func(*bin) float64) chart.Series {
		s := chart.Series{Name: name, Color: color}
		for i := range bins {
			s.Points = append(s.Points, chart.Point{X: bins[i].at, Y: of(&bins[i])})
		}
		return s
	}
	add := func(title, unit string, s ...chart.Series) {
		plot := chart.Plot{Title: title, XLabel: "seconds since the start", YLabel: unit, Series: s, Bands: bands}
		if unit == "ms" && farApart(s) {
			plot.Y = chart.Log
		}
		p.TimePlots = append(p.TimePlots, template.HTML(plot.SVG()))
	}
	throughput := []chart.Series{line("completed", 0, func(b *bin) float64 { return b.completed }),
		line("started", 2, func(b *bin) float64 { return b.started })}
	if slices.ContainsFunc(bins, func(b bin) bool { return b.errors > 0 }) {
		throughput = append(throughput, line("failed", 1, func(b *bin) float64 { return b.errors }))
	}
	add("Throughput", "requests/s", throughput...)
	add("Open requests", "requests", line("open", 0, func(b *bin) float64 { return b.open }))
	add("TTFT of the responses that began in each second", "ms", line("p50", 0, func(b *bin) float64 { return b.p50 }),
		line("p99", 1, func(b *bin) float64 { return b.p99 }))
	machine := run.Environment.HostCPUs
	if machine == 0 { // a run of before there was host_cpus
		machine = run.Environment.CPUs
	}
	cpu := []chart.Series{
		line("frontend", 0, func(b *bin) float64 { return b.front }),
		line("workers", 2, func(b *bin) float64 { return b.work }),
		line("load generator", 4, func(b *bin) float64 { return b.gen }), line("machine (all cores)", 1,
			func(b *bin) float64 { return b.busy * float64(machine) }),
	}
	cpu = slices.DeleteFunc(cpu, func(s chart.Series) bool {
		return !slices.ContainsFunc(s.Points, func(q chart.Point) bool { return !math.IsNaN(q.Y) })
	})
	if len(cpu) > 0 {
		add("Cores in use", "cores", cpu...)
	}
}

// farApart tells whether the values reach over so many sizes that a linear axis would press the small ones onto its
// floor.
func farApart(series []chart.Series) bool {
	lo, hi := math.Inf(1), 0.0
	for _, s := range series {
		for _, q := range s.Points {
			if q.Y > 0 {
				lo, hi = min(lo, q.Y), max(hi, q.Y)
			}
		}
	}
	return hi > 20*lo
}

// bin is one point of the time plots; NaN where nothing was measured.
type bin struct {
	at                         float64 // the middle
	seconds                    int
	started, completed, errors float64 // a second
	open, p50, p99             float64 // the last of the bin's seconds, the median's mean, the worst
	front, work, gen, busy     float64
}

// binned puts as many seconds together as it takes to have at most most points.
func binned(series []Second, most int) []bin {
	k := (len(series) + most - 1) / most
	var out []bin
	for i := 0; i < len(series); i += k {
		part := series[i:min(i+k, len(series))]
		n := float64(len(part))
		b := bin{at: float64(part[0].T) + n/2, seconds: k, open: float64(part[len(part)-1].Open), p99: math.NaN()}
		for j := range part {
			s := &part[j]
			b.started, b.completed, b.errors = b.started+float64(s.Started)/n, b.completed+float64(s.Completed)/n,
				b.errors+float64(s.Errors)/n
			if s.TTFTp99 != nil && !(b.p99 >= *s.TTFTp99) {
				b.p99 = *s.TTFTp99
			}
		}
		mean := func(of func(*Second) *float64) float64 {
			sum, n := 0.0, 0
			for j := range part {
				if v := of(&part[j]); v != nil {
					sum, n = sum+*v, n+1
				}
			}
			if n == 0 {
				return math.NaN()
			}
			return sum / float64(n)
		}
		b.p50 = mean(func(s *Second) *float64 { return s.TTFTp50 })
		b.front, b.work = mean(func(s *Second) *float64 { return s.FrontendCPU }),
			mean(func(s *Second) *float64 { return s.WorkerCPU })
		b.gen, b.busy = mean(func(s *Second) *float64 { return s.LoadgenCPU }),
			mean(func(s *Second) *float64 { return s.Busy })
		out = append(out, b)
	}
	return out
}

func (p *page) processes(run *Run) {
	p.HoldersSaid = "The responses do not name their worker process, so holders cannot be found."
	if run.Holders != nil {
		p.HoldersSaid = "A holder is a worker process that held a share of the open requests and answered late. " +
			"Compare only runs with the same number of holders."
		p.Holders = []figItem{{"holders", intFig("holders", run.Holders)}, {"holders by the reference's rule",
			intFig("holders_reference", run.HoldersReference)}}
	}
	var bars []chart.Bar
	for i := range run.Processes {
		r := &run.Processes[i]
		at := "processes." + strconv.Itoa(i)
		l := processLine{
			Name: r.Name, Role: r.Role, CPU: floatFig(at+".cpu_s", r.CPUSeconds, decimals(2)),
			RSS:      mib(at+".rss_peak_bytes", r.RSSPeak),
			Requests: intFig(at+".requests", r.Requests), First: floatFig(at+".mean_first_response_ms",
				r.MeanFirstResponse, msText),
			Metric:  floatFig(at+".metric_first_response_ms", r.MetricFirstResponse, msText),
			MetricN: intFig(at+".metric_responses", r.MetricResponses),
			Procs:   intFig(at+".gomaxprocs", r.GOMAXPROCS), Holder: r.Holder != nil && *r.Holder,
		}
		if len(p.Processes) < listed {
			p.Processes = append(p.Processes, l)
		}
		if r.MeanFirstResponse != nil && r.Requests != nil {
			text := fmt.Sprintf("%s ms, %s requests", l.First.Text, l.Requests.Text)
			if l.Holder {
				text += ", holder"
			}
			bars = append(bars, chart.Bar{Label: r.Name, Value: *r.MeanFirstResponse, Text: text, Marked: l.Holder})
		}
	}
	if n := len(run.Processes) - listed; n > 0 {
		p.ProcessesLeft = fmt.Sprintf("%d more processes are in run.json.", n)
	}
	if len(bars) == 0 {
		return
	}
	title := "Mean time to first response of each worker process"
	if len(bars) > mostBars {
		slices.SortStableFunc(bars, func(a, b chart.Bar) int { return cmp.Compare(b.Value, a.Value) })
		title = fmt.Sprintf("%s (the %d slowest of %d)", title, mostBars, len(bars))
		bars = bars[:mostBars]
	}
	b := chart.Bars{Title: title, Items: bars}
	p.LoadPlot = template.HTML(b.SVG())
}

func mib(path string, v *int64) fig {
	f := intFig(path, v)
	if v != nil {
		f.Text = decimals(1)(float64(*v) / (1 << 20))
	}
	return f
}

func (p *page) udp(run *Run) {
	u := run.UDP
	if u == nil {
		return
	}
	p.UDP = []figItem{
		{"datagrams in", intFig("udp.in_datagrams", u.InDatagrams)},
		{"datagrams out", intFig("udp.out_datagrams", u.OutDatagrams)},
		{"datagrams in a token", floatFig("udp.datagrams_per_token", u.DatagramsPerToken, decimals(4))},
		{"the same, in the steady window", floatFig("udp.steady_datagrams_per_token", u.SteadyDatagramsPerToken,
			decimals(4))},
		{"RcvbufErrors of the frontend's host", intFig("udp.rcvbuf_errors", u.RcvbufErrors)},
		{"kernel drops of our sockets", intFig("udp.socket_drops", u.SocketDrops)},
		{"dropped inside the QUIC library", intFig("udp.library_drops", u.LibraryDrops)},
		{"packets lost, as the senders saw it", intFig("udp.packets_lost", u.PacketsLost)},
	}
	p.GROSaid = groSaid(run)
	var bars []chart.Bar
	for i, s := range u.Sockets {
		at := "udp.sockets." + strconv.Itoa(i)
		if i < listed {
			p.DropTable = append(p.DropTable, dropLine{intFig(at+".port", &s.Port), intFig(at+".lane", s.Lane),
				intFig(at+".drops", s.Drops)})
			p.DropTable[i].Port.Text = p.DropTable[i].Port.Exact // a port is no quantity
		}
		if s.Drops == nil {
			continue
		}
		label := "port " + strconv.Itoa(s.Port)
		if s.Lane != nil {
			label += ", lane " + strconv.Itoa(*s.Lane)
		}
		bars = append(bars, chart.Bar{Label: label, Value: float64(*s.Drops), Text: chart.Thousands(count(s.Drops))})
	}
	if n := len(u.Sockets) - listed; n > 0 {
		p.SocketsLeft = fmt.Sprintf("%d more sockets are in run.json.", n)
	}
	if !slices.ContainsFunc(bars, func(b chart.Bar) bool { return b.Value > 0 }) {
		p.DropsSaid = fmt.Sprintf("None of the frontend's %d sockets dropped anything.", len(bars))
		if len(bars) == 0 {
			p.DropsSaid = "The drops of each socket were not measured."
		}
		return
	}
	title := "Kernel drops of each frontend socket"
	if len(bars) > mostBars {
		slices.SortStableFunc(bars, func(a, b chart.Bar) int { return cmp.Compare(b.Value, a.Value) })
		title = fmt.Sprintf("%s (the %d with most of %d)", title, mostBars, len(bars))
		bars = bars[:mostBars]
	}
	b := chart.Bars{Title: title, Items: bars}
	p.DropPlot = template.HTML(b.SVG())
}

// groSaid says how a drop is to be counted: with GRO one may be many packets.
func groSaid(run *Run) string {
	on, off := 0, 0
	for _, s := range run.Environment.Sockets {
		switch {
		case s.GRO == nil:
		case *s.GRO:
			on++
		default:
			off++
		}
	}
	switch {
	case on > 0 && off == 0:
		return "GRO was on: one RcvbufErrors may be many packets."
	case off > 0 && on == 0:
		return "GRO was off: one RcvbufErrors is one packet."
	case on > 0:
		return fmt.Sprintf("GRO was on for %d sockets and off for %d: where it was on, one RcvbufErrors may be many "+
			"packets.", on, off)
	}
	return "Nobody said whether GRO was on; with it, one RcvbufErrors may be many packets."
}

func (p *page) plane(run *Run) {
	pl := run.Plane
	if pl == nil {
		return
	}
	p.Plane = []figItem{
		{"records taken by the frontends", intFig("plane.records", pl.Records)},
		{"reads", intFig("plane.reads", pl.Reads)}, {"writes at the workers", intFig("plane.writes", pl.Writes)},
		{"records a write", floatFig("plane.records_per_write", pl.RecordsPerWrite, decimals(2))},
		{"wakes of consumers", intFig("plane.wakes", pl.Wakes)},
		{"lanes taken over", intFig("plane.takeovers", pl.Takeovers)},
		{"bytes sent again", intFig("plane.resent_bytes", pl.ResentBytes)},
	}
	for _, k := range keys(pl.StreamsEnded) {
		n := pl.StreamsEnded[k]
		p.Plane = append(p.Plane, figItem{"streams ended " + k, intFig("plane.streams_ended."+k, &n)})
	}
	for _, k := range keys(pl.PlaneRecords) {
		n := pl.PlaneRecords[k]
		p.Plane = append(p.Plane, figItem{"records over " + k + " (proof of transit)", intFig("plane.plane_records."+k,
			&n)})
	}
	for i, l := range pl.Lanes {
		if i == listed {
			p.LanesLeft = fmt.Sprintf("%d more lanes are in run.json.", len(pl.Lanes)-listed)
			break
		}
		at := "plane.lanes." + strconv.Itoa(i)
		p.Lanes = append(p.Lanes, laneLine{l.Process, intFig(at+".lane", &l.Lane), intFig(at+".streams", l.Streams),
			intFig(at+".bytes", l.Bytes)})
	}
}

func (p *page) client(run *Run) {
	c := run.Client
	p.Client = []figItem{
		{"schedule delay p99 (ms)", floatFig("client.schedule_delay_p99_ms", c.ScheduleDelayP99, msText)},
		{"events gather for (ms)", floatFig("client.tick_ms", c.Tick, msText)},
		{"limited", fig{"client.limited", strconv.FormatBool(c.Limited),
			map[bool]string{true: "yes", false: "no"}[c.Limited]}},
		{"client", fig{"client.kind", c.Kind, c.Kind}},
	}
}
