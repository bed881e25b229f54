package loadgen

import (
	"runtime"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// processes lists the scraped processes and this one.
func (f *figures) processes() []report.Process {
	var out []report.Process
	if len(f.samples) == 0 {
		return nil
	}
	first, last := f.samples[0], f.samples[len(f.samples)-1]
	for i := range last.procs {
		var name, role string
		var rss *int64
		for k := range f.samples {
			p := f.samples[k].procs[i]
			if p == nil {
				continue
			}
			name, role = p.name, p.role
			if v, ok := p.sum("process_resident_memory_bytes", nil); ok {
				if rss == nil {
					rss = new(int64)
				}
				*rss = max(*rss, int64(v))
			}
		}
		if name == "" {
			continue // it never answered
		}
		p := report.Process{Role: role, Name: name, RSSPeak: rss}
		a, b := first.procs[i], last.procs[i]
		p.CPUSeconds = grown(a, b, "process_cpu_seconds_total")
		sum, n := grown(a, b, firstResponseMetric+"_sum"), grown(a, b, firstResponseMetric+"_count")
		if sum != nil && n != nil && *n > 0 {
			p.MetricFirstResponse, p.MetricResponses = report.Ptr(*sum*1e3 / *n), report.Ptr(int64(*n))
		}
		if v, ok := b.sum("go_sched_gomaxprocs_threads", nil); ok {
			p.GOMAXPROCS = report.Ptr(int(v))
		}
		out = append(out, p)
	}
	self := report.Process{Role: "loadgen", Name: "loadgen", GOMAXPROCS: report.Ptr(runtime.GOMAXPROCS(0))}
	if first.selfOK && last.selfOK {
		self.CPUSeconds = report.Ptr(last.self.Sub(first.self).Total().Seconds())
	}
	if rss, ok := procstat.RSSPeak(procstat.Self); ok {
		self.RSSPeak = &rss
	}
	return append(out, self)
}

// grown is how much a metric of one process grew from one scrape to another; nil when one of them lacks it, or when the
// process was restarted between.
func grown(a, b *scrape, name string) *float64 {
	before, ok1 := a.sum(name, nil)
	after, ok2 := b.sum(name, nil)
	if !ok1 || !ok2 || after < before {
		return nil
	}
	return report.Ptr(after - before)
}
