package loadgen

import (
	"fmt"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// build makes the report.
func (e *engine) build(c client, col *collector, smp *sampler, interrupted bool) (*report.Run, []report.Second, error) {
	rows := col.rows
	local := merged(e.locals)
	fig := newFigures(e.t0, smp.samples, rows)
	state := e.plan.state()
	run := &report.Run{
		Schema: report.Schema, ID: e.prefix[:len(e.prefix)-1], Label: e.cfg.Label, StartedAt: report.Stamp(e.t0),
		Marks:  []string{},
		Config: e.config(c.kind()), Environment: e.environment(&smp.debugs),
		Client: report.Client{Kind: c.kind()},
	}
	if c.kind() != ClientGoroutines && e.cfg.Tick > 0 {
		run.Client.Tick = report.Ptr(float64(e.cfg.Tick) / float64(time.Millisecond))
	}
	var windows []report.Span
	var steadyDatagrams *float64
	if span, ok := report.RawSpan(rows); ok {
		run.Raw = report.Summarize(rows, span, local.rawGaps, e.cfg.Goodput)
		fig.window(run.Raw, span)
		windows = append(windows, span)
	}
	if span, ok := report.SteadySpan(rows, e.cfg.SteadyAfter, e.rampEnd, state.heldTo); ok {
		run.Steady = report.Summarize(rows, span, local.steadyGaps, e.cfg.Goodput)
		fig.window(run.Steady, span)
		windows = append(windows, span)
		steadyDatagrams = fig.datagramsPerToken(span)
	}
	run.Warmup = report.SummarizeWarmup(rows)
	run.Errors = col.failed.List()
	run.Plane = fig.plane(&smp.debugs)
	tokens := tokensSeen(rows)
	plane := e.cfg.Info.plane()
	if plane == "" || strings.HasSuffix(plane, "quic") {
		if run.UDP = fig.udp(tokens, &smp.debugs); run.UDP != nil {
			run.UDP.SteadyDatagramsPerToken = steadyDatagrams
		}
	}
	run.Processes = fig.processes()
	addHolders(run, rows)
	if err := e.cfg.Info.mergeInto(run); err != nil {
		return nil, nil, err
	}

	e.judge(run, c, local, fig, rows, windows)
	if interrupted || (e.cfg.Requests > 0 && e.cfg.Duration == 0 && state.measured < e.cfg.Requests) {
		run.Mark(report.MarkPartial)
	}
	if plane != "" {
		if why := proofOfTransit(plane, run.Plane, tokens); why != "" {
			run.Mark(report.MarkNoProof)
			e.cfg.Log.Warn("no proof of transit", "plane", plane, "reason", why)
		}
	}
	for i, err := range smp.failed {
		if err != nil {
			e.cfg.Log.Warn("metrics could not be read", "url", smp.scrapers[i].url, "error", err)
		}
	}
	if n := e.quiet.Load(); n > 0 {
		e.cfg.Log.Warn(fmt.Sprintf("%d more warnings about requests were held back", n))
	}
	series := report.Series(rows, local.chunks)
	fig.series(series)
	return run, series, nil
}

// config is every setting in force.
func (e *engine) config(kind string) map[string]any {
	out := map[string]any{}
	for k, v := range e.cfg.Settings {
		out[k] = v
	}
	// What the defaults and the server decided beats what the flags said.
	out["model"], out["concurrency"], out["request_count"], out["warmup_request_count"] = e.cfg.Model,
		e.cfg.Concurrency, e.cfg.Requests, e.cfg.Warmup
	out["isl"], out["osl"] = e.cfg.ISL, e.cfg.OSL
	out["client"] = kind
	if e.fallback != "" {
		out[fallbackKey] = e.fallback
	}
	return out
}

// environment is what the load generator itself sees of the machine.
func (e *engine) environment(d *debugs) report.Environment {
	env := report.Environment{Go: runtime.Version(), CPUs: procstat.CPUs()}
	if q, ok := procstat.CPUQuota(); ok {
		env.CPUQuota = &q
	}
	env.HostCPUs, _ = procstat.HostCPUs()
	env.Kernel, _ = procstat.Kernel()
	env.TCPCongestionControl, _ = procstat.TCPCongestionControl()
	if v, ok := procstat.RMemMax(); ok {
		env.RmemMax = &v
	}
	if v, ok := procstat.WMemMax(); ok {
		env.WmemMax = &v
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				env.Revision = s.Value
			}
		}
	}
	if mtu, ok := mtuTo(e.addr); ok {
		env.MTU = &mtu
	}
	env.Sockets = d.reportSockets()
	return env
}

// mtuTo is the MTU of the interface that leads to the server.
func mtuTo(addr string) (int, bool) {
	conn, err := net.Dial("udp", addr) // sends nothing: it only picks the source address
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	local, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return 0, false
	}
	name, ok := procstat.InterfaceOf(local.IP)
	if !ok {
		return 0, false
	}
	return procstat.MTU(name)
}

// addHolders puts what the rows say about each worker process beside what its metrics say.
func addHolders(run *report.Run, rows []report.Row) {
	loads := report.FindHolders(rows)
	if loads == nil {
		return
	}
	holders, reference := 0, 0
	for _, l := range loads {
		i := slices.IndexFunc(run.Processes,
			func(p report.Process) bool { return p.Role == roleWorker && p.Name == l.Name })
		if i < 0 {
			run.Processes = append(run.Processes, report.Process{Role: roleWorker, Name: l.Name})
			i = len(run.Processes) - 1
		}
		p := &run.Processes[i]
		p.Requests, p.MeanFirstResponse, p.Holder = report.Ptr(l.Requests), report.Ptr(l.MeanFirstResponse/1e6),
			report.Ptr(l.Holder)
		if l.Holder {
			holders++
		}
		if l.Reference {
			reference++
		}
	}
	run.Holders, run.HoldersReference = &holders, &reference
}
