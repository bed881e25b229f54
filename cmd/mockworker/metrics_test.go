package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/laneway-ai/laneway/internal/engine/mock"
)

// exposition is what /metrics shows.
func exposition(t *testing.T, m *metrics) string {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestMetrics(t *testing.T) {
	m := newMetrics("w \"0\"")
	e, err := mock.Start(mock.Config{Flush: func() {}, Observer: m})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	m.addLoad([]*mock.Engine{e})
	m.FirstToken(30 * time.Millisecond)
	m.Pass(3*time.Millisecond, 2)
	m.Cancelled()
	m.Held()
	for _, name := range mock.FailureTypeNames() {
		m.Injected(mock.FailureType(name))
	}
	for _, r := range append(mock.RefuseReasons[:], refusedUnsupported, refusedBadRequest) {
		m.Refused(r)
	}
	body := exposition(t, m)
	for _, want := range []string{
		`laneway_process_info{name="w \"0\"",role="worker"} 1`,
		"laneway_worker_time_to_first_response_seconds_sum 0.03",
		"laneway_worker_time_to_first_response_seconds_count 1",
		"laneway_worker_running_requests 0", "laneway_worker_waiting_requests 0",
		"laneway_worker_pass_late_seconds_sum 0.003", "laneway_worker_passes_skipped_total 2",
		"laneway_worker_cancelled_total 1",
		"laneway_worker_held_total 1", "laneway_worker_held_requests 0",
		`laneway_worker_injected_failures_total{type="kill"} 1`,
		`laneway_worker_injected_failures_total{type="lane"} 1`,
		`laneway_worker_refused_total{reason="busy"} 1`, `laneway_worker_refused_total{reason="unsupported"} 1`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if !strings.Contains(body, "\nprocess_cpu_seconds_total ") {
		t.Error("/metrics lacks the process's CPU time")
	}
	if n := testing.AllocsPerRun(100,
		func() { m.Pass(time.Millisecond, 0); m.FirstToken(time.Millisecond); m.Cancelled() }); n != 0 {
		t.Errorf("observing allocates %v times", n)
	}
}
