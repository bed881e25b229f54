package loadgen

import (
	"fmt"
	"runtime"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

const (
	// clientLimit is the schedule delay p99 past which a run is marked client-limited.
	clientLimit = 5 * time.Millisecond
	// clientCPULimit is the share of the processor time that the client can use past which a run is marked
	// client-limited too: what it measures then is itself.
	clientCPULimit = 0.9
	// machineLimit is the share of the least busy core past which a run is marked machine-limited.
	machineLimit = 0.9
)

// judge marks the run for what the load generator knows of itself and of the machine. spans are the run's windows, the
// last one counts.
func (e *engine) judge(run *report.Run, c client, local *local, fig *figures, rows []report.Row, spans []report.Span) {
	if d := local.delays; d.TotalCount() > 0 {
		p99 := time.Duration(d.ValueAtPercentile(99))
		run.Client.ScheduleDelayP99 = report.Ptr(float64(p99) / 1e6)
		run.Client.Limited = p99 > clientLimit
	}
	report.MarkRows(run, rows)
	if len(spans) > 0 {
		span := spans[len(spans)-1]
		if used, ok := fig.selfCPU(span); ok && used > clientCPULimit*e.capacity(c) {
			run.Client.Limited = true
			e.cfg.Log.Warn("the load generator itself is the limit: use more loops, or several generators and "+
				"`loadgen merge`",
				"cores_used", fmt.Sprintf("%.2f", used), "cores_of_the_client", fmt.Sprintf("%.2f", e.capacity(c)))
		}
		if least, ok := fig.window(new(report.Window), span); ok && least > machineLimit {
			run.Mark(report.MarkMachineLimited)
		}
	}
	if run.Client.Limited {
		run.Mark(report.MarkClientLimited)
	}
	if shared, why := sharedCores(e.addr); shared {
		run.Mark(report.MarkSharedCores)
		e.cfg.Log.Debug("the load generator shares cores with the server", "why", why)
	}
}

// capacity is how many cores the client can keep busy: no more than a quota of its control group gives it, which may
// be less than GOMAXPROCS.
func (e *engine) capacity(c client) float64 {
	n := runtime.GOMAXPROCS(0)
	if c.kind() != ClientGoroutines {
		n = min(n, e.cfg.Loops, e.cfg.Concurrency)
	}
	if quota, ok := procstat.CPUQuota(); ok {
		return min(float64(n), quota)
	}
	return float64(n)
}

// selfCPU is how many cores this process used in a window, false without samples near its ends.
func (f *figures) selfCPU(span report.Span) (float64, bool) {
	a, b, ok := f.around(span)
	if !ok || !a.selfOK || !b.selfOK {
		return 0, false
	}
	return b.self.Sub(a.self).Total().Seconds() / b.at.Sub(a.at).Seconds(), true
}
