//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// leaseTTL is what the tests' workers ask for.
const leaseTTL = 2 * time.Second

// TestEtcdAway: no answer is cut and no request is turned away while etcd is away, and afterwards every worker is known
// again.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var workers []*worker
	for i := range 4 {
		workers = append(workers, w.startWorker(t, fmt.Sprintf("wp-%d", i), 16))
	}
	for _, k := range workers {
		k.ready(t)
	}
	f := w.startFrontend(t).serving(t)
	f.sees(t, 64)

	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name        string
		away        time.Duration
		leave, back func() error
	}{
		{"silent for 0.8 of the TTL", leaseTTL * 8 / 10, w.etcd.Pause, w.etcd.Resume},
		{"silent for 3 times the TTL", 3 * leaseTTL, w.etcd.Pause, w.etcd.Resume},
		{"dead for 3 times the TTL", 3 * leaseTTL, func() error { w.etcd.Kill(); return nil },
			func() error { return w.etcd.Restart(context.Background()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The held answers begin before and end after: they last as long as the outage and 3 s.
			held := f.hold(t, 24/scale, int((c.away+3*time.Second)/(50*time.Millisecond)))
			l := f.startLoad(t, 40/scale, 10)
			must(c.leave())
			time.Sleep(c.away)
			lowest, vanished := 64, 0
			must(c.back())
			began := time.Now()
			// What the frontend knows may go down first: the leases that ran out are gone once etcd is back.
			var settled, last time.Time
			eventually(t, "64 workers, for one TTL on end", func() bool {
				v := f.view(t).Workers
				lowest, vanished = min(lowest, v.Known), max(vanished, v.Vanished)
				if v.Known != 64 || v.Reachable != 64 || v.Vanished != 0 {
					settled = time.Time{}
					return false
				}
				if settled.IsZero() {
					settled = time.Now()
				}
				last = settled
				return time.Since(settled) > leaseTTL
			})
			took := last.Sub(began)
			t.Logf("every worker known again %v after etcd was back; the least known meanwhile %d, the most vanished %d", took, lowest, vanished)
			if took > 50*time.Second {
				t.Errorf("known again only after %v", took)
			}
			allWhole(t, "requests meanwhile", l.end())
			allWhole(t, "answers that were open", held())
		})
	}
	for _, k := range workers {
		k.quiet(t)
	}
	f.quiet(t)
}

// TestNATSRestarts: open answers do not care, new requests fail at once and typed while it is away, and flow again when
// it is back.
func TestNATSRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 2 {
		w.startWorker(t, fmt.Sprintf("wp-%d", i), 8).ready(t)
	}
	f := w.startFrontend(t).serving(t)
	f.sees(t, 16)
	held := f.hold(t, 24/scale, 120)
	l := f.startLoad(t, 40/scale, 5)
	time.Sleep(500 * time.Millisecond)
	killed := time.Now()
	w.nats.Kill()
	o := f.ask(t.Context(), 1, nil)
	if o.whole || !o.typed() || o.code != "unavailable" {
		t.Errorf("without NATS: %v", o)
	}
	t.Logf("without NATS a request fails after %v: %s", o.took, o.text)
	for _, k := range f.view(t).List {
		if k.Avoided {
			t.Errorf("worker %s is avoided because NATS is away", k.ID)
		}
	}
	time.Sleep(time.Second)
	if err := w.nats.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	took := eventually(t, "answered request", func() bool { return f.ask(t.Context(), 1, nil).whole })
	t.Logf("new requests flow %v after NATS was back", took)
	if took > 20*time.Second {
		t.Errorf("new requests flow only after %v", took)
	}
	// All workers, not the first one only.
	all := eventually(t, "row of 32 answered requests", func() bool {
		for range 32 {
			if !f.ask(t.Context(), 1, nil).whole {
				return false
			}
		}
		return true
	})
	t.Logf("on every worker %v after NATS was back", took+all)
	time.Sleep(300 * time.Millisecond)
	allWhole(t, "answers that were open", held())
	failed := 0
	for _, o := range l.end() {
		if o.whole {
			continue
		}
		failed++
		at := o.began.Add(o.took)
		if !o.typed() || o.tokens > 0 || at.Before(killed) || o.began.After(back.Add(took+all)) {
			t.Errorf("killed at %s, back at %s: %v", killed.Format("05.000"), back.Format("05.000"), o)
		}
	}
	t.Logf("%d requests were turned away in the %v of the outage", failed, back.Sub(killed))
	f.quiet(t)
}

// TestAnyOrder: frontend first, then workers, then the servers that both need.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.etcd.Kill()
	w.nats.Kill()
	f := w.startFrontend(t, "--wait-for-discovery=5m")
	f.says(t, "etcd does not answer yet", "--wait-for-discovery")
	k := w.startWorker(t, "wp", 4, "--wait-for-discovery=5m")
	k.says(t, "NATS does not answer yet", "--wait-for-discovery")
	if err := w.nats.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.says(t, "etcd does not answer yet")
	if err := w.etcd.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	f.serving(t)
	k.ready(t)
	f.sees(t, 4)
	t.Logf("a whole cluster %v after the last server came", time.Since(began))
	if o := f.ask(t.Context(), 3, nil); !o.whole {
		t.Error(o)
	}
}
