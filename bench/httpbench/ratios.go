package httpbench

import (
	"slices"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/transport"
)

// Ratio compares an arm with a base at the same number of open responses: in each repetition the one's figure / the
// other's.
type Ratio struct {
	Arm      string            `json:"arm"`
	Base     string            `json:"base"`
	Streams  int               `json:"streams"`
	LeftOut  int               `json:"left_out,omitempty"` // pairs in which a run is marked
	Behind   int               `json:"behind,omitempty"`   // pairs that count although Arm missed the offered rate while Base held it: Arm's figure is too low
	Frontend benchtable.Spread `json:"frontend"`
	Total    benchtable.Spread `json:"total"`            // frontend and workers
	Worker   benchtable.Spread `json:"worker"`           // N = 0 where an arm has no workers
	TTFTP99  benchtable.Spread `json:"ttft_p99_ms_more"` // arm - base
}

// Added is what Laneway adds to the frontend over one that is fed in process, without what its engines use, as a
// multiple of what a bare connection adds.
type Added struct {
	Arm     string `json:"arm"`
	Bare    string `json:"bare"`
	Streams int    `json:"streams"`
	LeftOut int    `json:"left_out,omitempty"` // repetitions in which a run is marked
	// NoBase are repetitions in which the bare connection added nothing that could be seen.
	NoBase int               `json:"no_base,omitempty"`
	Ratio  benchtable.Spread `json:"ratio"`
	// OwnMS and BareMS are what the two add, in ms of CPU a request.
	OwnMS  benchtable.Spread `json:"own_ms"`
	BareMS benchtable.Spread `json:"bare_ms"`
}

// Growth is CPU a token with many open responses / with few, in each repetition.
type Growth struct {
	Arm      string            `json:"arm"`
	From     int               `json:"from"`
	To       int               `json:"to"`
	LeftOut  int               `json:"left_out,omitempty"`
	Frontend benchtable.Spread `json:"frontend"`
	Total    benchtable.Spread `json:"total"`
}

// compare fills in what runs say about each other.
func (r *Report) compare(cfg Config) {
	for _, n := range cfg.Streams {
		for _, a := range cfg.Arms {
			if a.Name != LanewayTCP {
				r.addRatio(a.Name, LanewayTCP, n, cfg.Pairs)
			}
		}
		for _, p := range planes() {
			r.addRatio(laneway(p), bare(p), n, cfg.Pairs)
			r.addAdded(laneway(p), bare(p), n, cfg.Pairs)
		}
		r.addAdded(laneway(transport.PlaneQUIC), bare(transport.PlaneTCP), n, cfg.Pairs)
	}
	if few, many := slices.Min(cfg.Streams), slices.Max(cfg.Streams); few < many && !cfg.SameInterval {
		for _, a := range cfg.Arms {
			r.addGrowth(a.Name, few, many, cfg.Pairs)
		}
	}
}

func (r *Report) find(arm string, streams, rep int) *Run {
	for _, run := range r.Runs {
		if run.Arm == arm && run.Streams == streams && run.Run == rep {
			return run
		}
	}
	return nil
}

func (r *Report) addRatio(arm, base string, streams, reps int) {
	x := Ratio{Arm: arm, Base: base, Streams: streams}
	var front, worker, total, ttft []float64
	any := false
	for rep := 1; rep <= reps; rep++ {
		one, against := r.find(arm, streams, rep), r.find(base, streams, rep)
		if one == nil || against == nil {
			continue
		}
		any = true
		switch {
		case len(one.Marks)+len(against.Marks) == 0:
		case len(against.Marks) == 0 && slices.Contains(one.Marks, planebench.MarkBelowOffered):
			x.Behind++
		default:
			x.LeftOut++
			continue
		}
		front = append(front, one.Frontend.CPUMS/against.Frontend.CPUMS)
		total = append(total, one.TotalMS/against.TotalMS)
		if one.Worker != nil && against.Worker != nil {
			worker = append(worker, one.Worker.CPUMS/against.Worker.CPUMS)
		}
		if one.TTFT != nil && against.TTFT != nil {
			ttft = append(ttft, one.TTFT.P99-against.TTFT.P99)
		}
	}
	if any {
		x.Frontend, x.Total, x.Worker, x.TTFTP99 = benchtable.SpreadOf(front), benchtable.SpreadOf(total),
			benchtable.SpreadOf(worker), benchtable.SpreadOf(ttft)
		r.Ratios = append(r.Ratios, x)
	}
}

func (r *Report) addAdded(arm, base string, streams, reps int) {
	x := Added{Arm: arm, Bare: base, Streams: streams}
	var ratio, own, of []float64
	any := false
	for rep := 1; rep <= reps; rep++ {
		one, against, none := r.find(arm, streams, rep), r.find(base, streams, rep), r.find(InProcess, streams, rep)
		if one == nil || against == nil || none == nil {
			continue
		}
		any = true
		if len(one.Marks)+len(against.Marks)+len(none.Marks) > 0 {
			x.LeftOut++
			continue
		}
		a, b := one.Frontend.CPUMS-none.outPathMS(), against.Frontend.CPUMS-none.outPathMS()
		own, of = append(own, a), append(of, b)
		if b <= 0 {
			x.NoBase++
			continue
		}
		ratio = append(ratio, a/b)
	}
	if any {
		x.Ratio, x.OwnMS, x.BareMS = benchtable.SpreadOf(ratio), benchtable.SpreadOf(own), benchtable.SpreadOf(of)
		r.Added = append(r.Added, x)
	}
}

func (r *Report) addGrowth(arm string, few, many, reps int) {
	x := Growth{Arm: arm, From: few, To: many}
	var front, total []float64
	for rep := 1; rep <= reps; rep++ {
		a, b := r.find(arm, few, rep), r.find(arm, many, rep)
		if a == nil || b == nil {
			continue
		}
		if len(a.Marks)+len(b.Marks) > 0 {
			x.LeftOut++
			continue
		}
		// the same tokens a request
		front, total = append(front, b.Frontend.TokenUS/a.Frontend.TokenUS), append(total, b.TotalMS/a.TotalMS)
	}
	x.Frontend, x.Total = benchtable.SpreadOf(front), benchtable.SpreadOf(total)
	r.Growth = append(r.Growth, x)
}
