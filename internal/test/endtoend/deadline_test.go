//go:build linux

package endtoend

import (
	"syscall"
	"testing"
	"time"
)

// ends are how responses have ended at a process, by kind, without kinds that did not occur.
func (w *world) ends(t *testing.T, admin string) map[string]float64 {
	t.Helper()
	m, out := w.metrics(t, admin), make(map[string]float64)
	for _, kind := range []string{"complete", "failed", "stopped", "killed", "refused", "deadline", "lost",
		"protocol"} {
		if v := m[`laneway_streams_ended_total{end="`+kind+`"}`]; v > 0 {
			out[kind] = v
		}
	}
	return out
}

// givenUp is how many responses a worker ended because the frontend, whose clock decides, gave them up, or because it
// saw their deadline first; -1 when any ended otherwise.
func givenUp(ends map[string]float64) float64 {
	n := ends["killed"] + ends["deadline"]
	for kind := range ends {
		if kind != "killed" && kind != "deadline" {
			return -1
		}
	}
	return n
}

// TestSilentWorker: a worker that acknowledges and then says nothing costs its requests one first-token deadline, then
// it is avoided.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	w := newWorld(t)
	good := w.startWorker(t, "good", 1)
	// A stall of an answer of one token comes before it.
	silent := w.startWorker(t, "silent", 1, "--failure-injection-rate=1", "--failure-types=stall")
	good.ready(t)
	silent.ready(t)
	f := w.startFrontend(t, "--first-token-timeout="+limit.String(), "--router=round-robin").serving(t)
	f.sees(t, 2)

	var all []outcome
	avoided := func() bool {
		for _, k := range f.view(t).List {
			if k.Name == "silent" {
				return k.Avoided
			}
		}
		t.Fatal("the silent worker is not listed")
		return false
	}
	for len(all) < 4 && !avoided() {
		all = append(all, f.ask(t.Context(), 1, nil))
	}
	since := time.Now()
	last := all[len(all)-1]
	if last.retries != "1" || last.process != "good" || last.took < limit {
		t.Errorf("the request that met the silent worker: %v", last)
	}
	t.Logf("a request that met the silent worker took %v", last.took)
	for range 10 {
		o := f.ask(t.Context(), 1, nil)
		all = append(all, o)
		if o.retries != "" && time.Since(since) < 4*time.Second {
			t.Errorf("the silent worker was asked while it is avoided: %v", o)
		}
	}
	took := eventually(t, "end of the avoiding", func() bool { return !avoided() })
	t.Logf("avoided for %v", time.Since(since))
	if took > 50*time.Second {
		t.Error("avoided for too long")
	}
	allWhole(t, "requests", all)
	met := f.retries(t)["first_record_timeout"] // more than once only when 10 requests took longer than it is avoided
	if met < 1 || len(f.retries(t)) != 1 {
		t.Errorf("retries: %v", f.retries(t))
	}
	f.quiet(t)
	good.quiet(t)
	silent.quiet(t)
	if fe, wo := w.ends(t, f.admin), w.ends(t, silent.admin); fe["deadline"] != met || givenUp(wo) != met {
		t.Errorf("ends at the frontend %v, at the silent worker %v", fe, wo)
	}
}

// TestDeadlines: inactivity and a request's own deadline end an answer in its middle, as what they are at both ends.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stalls := w.startWorker(t, "stalls", 1, "--failure-injection-rate=1", "--failure-types=stall", "--seed=7")
	stalls.ready(t)
	f := w.startFrontend(t, "--inactivity-timeout=500ms", "--first-token-timeout=20s", "--retry-limit=0").serving(t)
	f.sees(t, 1)
	var o outcome
	for o.tokens == 0 { // where it stalls is drawn; a stall before the first token is the other test's
		o = f.ask(t.Context(), 40, nil)
		if o.tokens == 0 && o.code != "timeout" {
			t.Fatal(o)
		}
	}
	if o.code != "timeout" || o.broken != nil {
		t.Errorf("silent in the middle: %v", o)
	}
	t.Logf("inactivity: %v", o)
	f.quiet(t)
	stalls.quiet(t)
	if fe, wo := w.ends(t, f.admin), w.ends(t, stalls.admin); fe["deadline"] == 0 || len(fe) != 1 ||
		givenUp(wo) != fe["deadline"] {
		t.Errorf("inactivity: ends at the frontend %v, at the worker %v", fe, wo)
	}
	stalls.signal(syscall.SIGTERM)
	f.signal(syscall.SIGTERM)
	if code := stalls.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if code := f.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}

	steady := w.startWorker(t, "steady", 1).ready(t)
	f = w.startFrontend(t, "--request-timeout=1s").serving(t)
	f.sees(t, 1)
	o = f.ask(t.Context(), 1000, nil)
	if o.code != "timeout" || o.tokens == 0 || o.took < time.Second || o.took > 10*time.Second {
		t.Errorf("past its deadline: %v", o)
	}
	t.Logf("request deadline of 1s: %v", o)
	f.quiet(t)
	steady.quiet(t)
	if fe, wo := w.ends(t, f.admin), w.ends(t, steady.admin); fe["deadline"] != 1 || len(fe) != 1 || givenUp(wo) != 1 {
		t.Errorf("request deadline: ends at the frontend %v, at the worker %v", fe, wo)
	}
	if v := f.view(t); len(v.List) != 1 || v.List[0].Avoided {
		t.Errorf("a request's own deadline speaks against nobody: %+v", v.List)
	}
}
