//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// heldFor is how long the answers that a draining process has open last; LANEWAY_DRAIN_FOR=30s makes it longer.
func heldFor(t *testing.T) time.Duration {
	s := os.Getenv("LANEWAY_DRAIN_FOR")
	if s == "" {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("LANEWAY_DRAIN_FOR=%s: %v", s, err)
	}
	return d
}

// leaves tells a process to leave, as GNU timeout does it: the process gets the signal, and then again with its group.
func leaves(p *process, s syscall.Signal) {
	p.signal(s)
	p.signal(s)
}

// TestWorkerLeaves: on SIGTERM a worker process leaves the registry, still takes what comes late, finishes 200 answers,
// says goodbye on its lanes and exits with 0.
func TestWorkerLeaves(t *testing.T) {
	t.Parallel()
	const answers, interval = 200 / scale, 100 * time.Millisecond
	w := newWorld(t)
	k := w.startWorker(t, "leaves", 4, "--inter-token-latency="+interval.String(), "--drain-grace=2s",
		"--drain-timeout=2m").ready(t)
	f := w.startFrontend(t).serving(t)
	f.sees(t, 4)
	held := f.hold(t, answers, int(heldFor(t)/interval))

	leaves(k.process, syscall.SIGTERM)
	signalled := time.Now()
	k.says(t, "left the registry")
	eventually(t, "frontend without workers in the registry", func() bool { return f.view(t).Workers.Known == 0 })
	t.Logf("out of the registry %v after the signal", time.Since(signalled))
	if len(k.lines("msg=drained")) > 0 {
		t.Fatal("the process has drained before its answers ended")
	}
	if code, b := w.get(t, k.admin+"/readyz"); code != 503 {
		t.Errorf("readyz %d %s", code, b)
	}
	if code, b := w.get(t, k.admin+"/livez"); code != 200 {
		t.Errorf("livez %d %s", code, b)
	}
	// Within the grace: nobody else serves the model, and this process has promised to take what comes late.
	late := f.ask(t.Context(), 5, nil)
	if !late.whole || late.process != "leaves" {
		t.Errorf("a late request: %v", late)
	}
	if took := time.Since(signalled); took > 2*time.Second {
		t.Logf("the late request ended %v after the signal; that says little about the grace of 2s", took)
	}
	// When the grace is over, frontends are told on their lanes, while the answers go on.
	eventually(t, "frontend without workers", func() bool { return len(f.view(t).List) == 0 })
	if took := time.Since(signalled); took < 2*time.Second {
		t.Errorf("the frontend gave the process up after %v, before its grace was over", took)
	}
	if open := f.view(t).Open; open != answers || len(k.lines("msg=drained")) > 0 {
		t.Errorf("%d of %d answers are open when the grace is over: have them last longer", open, answers)
	}
	all := held()
	ended := time.Now()
	allWhole(t, "answers that were open", all)
	if code := k.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("the process ended %v after its last answer", time.Since(ended))
	if len(k.lines("msg=drained")) != 1 {
		t.Error("it never said that it has drained")
	}
	f.quiet(t)
	f.says(t, "lane down", "the worker closes") // its last GOAWAY
	o := f.ask(t.Context(), 1, nil)
	if o.whole || o.broken != nil || o.status != 404 && o.status != 503 {
		t.Errorf("after it has gone: %v", o)
	}
}

// TestFrontendLeaves: on SIGTERM, or when its terminal is closed, a frontend is not ready at once, stays alive, turns
// new requests away, finishes open ones and exits with 0.
func TestFrontendLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.startWorker(t, "wp", 2).ready(t)
	f := w.startFrontend(t, "--drain-timeout=1m").serving(t)
	f.sees(t, 2)
	held := f.hold(t, 20/scale, 60)
	leaves(f.process, syscall.SIGHUP)
	f.says(t, "msg=draining")
	eventually(t, "frontend that is not ready",
		func() bool { code, _ := w.get(t, f.admin+"/readyz"); return code == 503 })
	if code, b := w.get(t, f.admin+"/livez"); code != 200 {
		t.Errorf("livez %d %s", code, b)
	}
	o := f.ask(t.Context(), 1, nil)
	if o.whole || o.status != 503 && o.broken == nil {
		t.Errorf("a new request: %v", o)
	}
	t.Logf("a new request while it drains: %v", o)
	// A worker that comes and one that goes do not matter to what is open.
	other := w.startWorker(t, "other", 1).ready(t)
	other.kill()
	allWhole(t, "answers that were open", held())
	if code := f.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	k.quiet(t)
}

// TestRegisterMany: 512 workers in 8 processes, all started at once.
func TestRegisterMany(t *testing.T) {
	t.Parallel()
	const processes, each = 8, 64
	w := newWorld(t)
	f := w.startFrontend(t).serving(t)
	var all []*worker
	began := time.Now()
	for i := range processes {
		all = append(all, w.startWorker(t, fmt.Sprintf("many-%d", i), each, "--lease-ttl=10s"))
	}
	for _, k := range all {
		k.ready(t)
	}
	registered := time.Since(began)
	f.sees(t, processes*each)
	reachable := time.Since(began)
	t.Logf("512 workers in 8 processes: registered %v after the first process was started, all known and reachable "+
		"at the frontend after %v", registered, reachable)
	if registered > 20*time.Second {
		t.Errorf("registered only after %v", registered)
	}
	if o := f.ask(t.Context(), 2, nil); !o.whole {
		t.Error(o)
	}
}

// TestBrokenRecords: one line in the frontend's log for each record that does not hold, with its key and field; the
// others serve.
func TestBrokenRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startWorker(t, "wp", 2).ready(t)
	f := w.startFrontend(t).serving(t)
	f.sees(t, 2)
	good := map[string]any{"schema": 1, "id": "x", "models": []string{"mock"},
		"node": map[string]any{"id": "00112233445566778899aabbccddeeff",
			"planes": []any{map[string]any{"name": "tcp", "endpoints": []string{"127.0.0.1:7000"}}}, "wire_min": 1,
			"wire_max": 1}}
	record := func(id string, change func(map[string]any)) string {
		b, err := json.Marshal(good)
		if err != nil {
			t.Fatal(err)
		}
		var r map[string]any
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		r["id"] = id
		change(r)
		if b, err = json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	address := func(a string) func(map[string]any) {
		return func(r map[string]any) {
			r["node"].(map[string]any)["planes"].([]any)[0].(map[string]any)["endpoints"] = []string{a}
		}
	}
	const prefix = "/laneway/v1/default/workers/"
	bad := []struct{ id, value, field string }{
		{"broken", `{"schema": 1, "id": "bro`, "json"},
		{"future", record("future", func(r map[string]any) { r["schema"] = 7 }), "schema"},
		{"wildcard", record("wildcard", address("0.0.0.0:7000")), "node.planes.endpoints"},
		{"port", record("port", address("127.0.0.1:70000")), "node.planes.endpoints"},
		{"latin-1", strings.Replace(record("latin-1", func(map[string]any) {}), "mock", "caf\xe9", 1), "encoding"},
		{"other", record("another", func(map[string]any) {}), "id"},
	}
	put := w.putter(t)
	for _, b := range bad {
		put(prefix+b.id, b.value)
		put(prefix+b.id, b.value) // the same again is no news
	}
	for _, b := range bad {
		line := f.says(t, prefix+b.id, b.field+":")
		t.Log(line)
	}
	for _, b := range bad {
		if n := len(f.lines(prefix + b.id)); n != 1 {
			t.Errorf("%d lines about %s", n, b.id)
		}
	}
	if v := f.view(t).Workers; v.Known != 2 || v.Reachable != 2 {
		t.Errorf("%+v", v)
	}
	if o := f.ask(t.Context(), 2, nil); !o.whole {
		t.Error(o)
	}
}
