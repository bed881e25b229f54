//go:build unix

package mux

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

var processPlanes = []string{transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC}

// TestKilledWorker: a worker process is killed with SIGKILL. Each of its streams ends once, as lost, by the evidence
// that no port of it answers; the streams of another worker go on.
func TestKilledWorker(t *testing.T) {
	for _, plane := range processPlanes {
		t.Run("plane="+plane, func(t *testing.T) {
			t.Parallel()
			lostWorker(t, plane, DefaultResume, func(_ *FrontendNode, c *child,
				_ remoteWorker) {
				c.signal(t, syscall.SIGKILL)
			})
		})
	}
}

// TestSuspectedWorker: a worker's host goes silent (here: the process is stopped) and its record leaves the registry.
// Suspect asks it, and after a second without an answer its connections are dead; nobody says HELLO on new ones, so
// its streams are lost after the resume timeout. A suspicion of the healthy worker does nothing.
func TestSuspectedWorker(t *testing.T) {
	for _, plane := range processPlanes {
		t.Run("plane="+plane, func(t *testing.T) {
			t.Parallel()
			lostWorker(t, plane, time.Second, func(recv *FrontendNode, c *child, w remoteWorker) {
				c.signal(t, syscall.SIGSTOP)
				// What was on its way has come.
				waitFor(t, "silence", func() bool { return silentFor(recv, w) > 200*time.Millisecond })
				for _, p := range recv.Peers() {
					recv.Suspect(p.ID)
				}
			})
		})
	}
}

// silentFor is how long nothing has come from a worker.
func silentFor(recv *FrontendNode, w remoteWorker) time.Duration {
	last := int64(0)
	for _, k := range recv.all() {
		if k.link.Peer() == w.ID {
			for _, l := range k.link.Lanes() {
				last = max(last, l.Pipe().Heard())
			}
		}
	}
	return time.Duration(recv.now() - last)
}

// lostWorker loses one of two workers and measures how long its streams take to end.
func lostWorker(t *testing.T, plane string, resume time.Duration, lose func(*FrontendNode, *child, remoteWorker)) {
	const streams = 100
	recv := newFrontend(t, plane, resume)
	victim, vw := startWorker(t, plane)
	_, ow := startWorker(t, plane)
	addWorker(t, recv, plane, vw)
	addWorker(t, recv, plane, ow)
	lost := startLoad(t, recv, vw, streams, remoteRequest{Records: 1 << 30, Size: 64, Every: 20 * time.Millisecond})
	other := startLoad(t, recv, ow, streams, remoteRequest{Records: 100, Size: 64, Every: 20 * time.Millisecond})
	waitFor(t, "records on every stream", func() bool { return lost.allStarted(streams) && other.allStarted(streams) })
	start := time.Now()
	lose(recv, victim, vw)
	lost.check(t, "the lost worker", "lost", streams)
	took := lost.last.Sub(start)
	t.Logf("%d streams ended as lost after %v", streams, took)
	if took > 10*time.Second {
		t.Errorf("it took %v until all streams ended as lost; the target is 1 or 2 s on an idle machine", took)
	}
	other.check(t, "the other worker", "complete", streams)
}

// stopped is a process that will be stopped, what puts it under load, and what looks at the outcome.
type stopped struct {
	name  string
	child *child
	load  func()
	check func(t *testing.T)
}

// TestStoppedProcess: processes are stopped for 8 s under load, longer than the other side needs to find their lanes
// dead. Nothing fails. The times of the cases overlap.
func TestStoppedProcess(t *testing.T) {
	var cases []stopped
	for _, plane := range processPlanes {
		cases = append(cases, stoppedWorker(t, plane), stoppedFrontend(t, plane))
	}
	var stops []time.Time
	for _, c := range cases {
		c.load()
		c.child.signal(t, syscall.SIGSTOP)
		stops = append(stops, time.Now())
	}
	for i, c := range cases {
		time.Sleep(time.Until(stops[i].Add(8 * time.Second))) // this is the fault
		c.child.signal(t, syscall.SIGCONT)
	}
	start := time.Now()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.check(t)
			t.Logf("all complete %v after the last process went on", time.Since(start))
		})
	}
}

// stoppedWorker is a worker that will be stopped; its frontend is this process.
func stoppedWorker(t *testing.T, plane string) stopped {
	recv := newFrontend(t, plane, DefaultResume)
	c, w := startWorker(t, plane)
	addWorker(t, recv, plane, w)
	var l *remoteLoad
	return stopped{"worker/plane=" + plane, c, func() {
		l = startLoad(t, recv, w, stopStreams, stopLoad)
		waitFor(t, "records on every stream", func() bool { return l.allStarted(stopStreams) })
	}, func(t *testing.T) {
		l.check(t, "streams of a stopped worker", "complete", stopStreams)
		st := recv.Stats()
		t.Logf("%d takeovers, deaths %v", takeovers(recv), st.LaneDeaths)
		if takeovers(recv) == 0 {
			t.Error("no lane was taken over: the worker was not stopped under load")
		}
	}}
}

// stoppedFrontend is a frontend that will be stopped, with a worker that goes on.
func stoppedFrontend(t *testing.T, plane string) stopped {
	_, w := startWorker(t, plane)
	c := startChild(t, "frontend", plane)
	say := json.NewEncoder(c.in)
	if err := say.Encode(w); err != nil {
		t.Fatal(err)
	}
	hear := func(what string) {
		var word string
		if err := c.out.Decode(&word); err != nil || word != what {
			t.Fatalf("the frontend should say %s: %q, %v: %s", what, word, err, c.log.String())
		}
	}
	hear("connected")
	return stopped{"frontend/plane=" + plane, c, func() {
		if err := say.Encode("load"); err != nil {
			t.Fatal(err)
		}
		hear("started")
	}, func(t *testing.T) {
		var l remoteLoad
		if err := c.out.Decode(&l); err != nil {
			t.Fatalf("the frontend does not report: %v: %s", err, c.log.String())
		}
		if l.Ends["complete"] != stopStreams || len(l.Wrong) > 0 {
			t.Errorf("%d streams should have completed, they ended %v; wrong: %v", stopStreams, l.Ends, l.Wrong)
		}
	}}
}
