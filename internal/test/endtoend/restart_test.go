//go:build linux

package endtoend

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"
)

// fixedPort finds a port that is free, with the one after it, for TCP and UDP, and keeps it for the test. Between the
// search and the worker's start, and while the worker is dead, nobody listens there: so it is of 19100 to 19999, where
// no other test of this repository and no kernel looks for ports, and each pair has a name that one test at a time
// holds, in whatever process it runs.
func fixedPort(t *testing.T) int {
	t.Helper()
	free := func(port int) bool {
		a := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", a)
		if err != nil {
			return false
		}
		defer l.Close()
		u, err := net.ListenPacket("udp", a)
		if err != nil {
			return false
		}
		return u.Close() == nil
	}
	for _, i := range rand.Perm(450) {
		port := 19100 + 2*i
		name, err := net.Listen("unix", "@laneway-endtoend-port-"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		if free(port) && free(port+1) {
			t.Cleanup(func() { name.Close() })
			return port
		}
		name.Close()
	}
	t.Fatal("no two free ports")
	return 0
}

// TestRestartOnTheSamePort: a worker process is killed under load and started again at the same address. Its new life
// is another node, and gets requests as soon as its record is there. The target is 2 s; a busy machine gets ten times
// that.
func TestRestartOnTheSamePort(t *testing.T) {
	t.Parallel()
	for _, plane := range []string{"tcp", "tls", "quic"} {
		t.Run(plane, func(t *testing.T) {
			w := newWorld(t)
			bind := net.JoinHostPort("127.0.0.1", strconv.Itoa(fixedPort(t)))
			begin := func() *worker {
				return w.startWorker(t, "victim", 2, "--response-plane="+plane, "--bind-addr="+bind,
					"--server-endpoints=2", "--time-to-first-token=100ms")
			}
			stable := w.startWorker(t, "stable", 2, "--response-plane="+plane, "--time-to-first-token=100ms").ready(t)
			victim := begin().ready(t)
			f := w.startFrontend(t, "--response-plane="+plane, "--lanes=2").serving(t)
			f.sees(t, 4)
			l := f.startLoad(t, 60/scale, 20)
			served := func() bool { return f.ask(t.Context(), 1, nil).process == "victim" }
			eventually(t, "load on the process", func() bool {
				open := 0
				for _, k := range f.view(t).List {
					if k.Name == "victim" {
						open += k.Open
					}
				}
				return open >= 20/scale
			})
			victim.kill()
			killed := time.Now()
			victim = begin().ready(t)
			registered := time.Now()
			eventually(t, "answer of the process in its new life", served)
			took := time.Since(registered)
			t.Logf("killed, registered again after %v, and serving %v after that", registered.Sub(killed), took)
			if took > 20*time.Second {
				t.Errorf("new requests flow only %v after its registration", took)
			}
			f.sees(t, 4)
			again, failed := 0, 0
			for _, o := range l.end() {
				switch {
				case o.whole && o.process == "victim" && o.began.After(registered):
					again++
				case !o.whole:
					failed++
					if o.tokens == 0 || o.code != "lost" || o.process != "victim" || o.began.After(killed) {
						t.Errorf("killed at %s: %v", killed.Format("05.000"), o)
					}
				}
			}
			t.Logf("%d answers were cut, %d came from the new life", failed, again)
			if failed == 0 {
				t.Error("no answer was open when the process was killed")
			}
			f.quiet(t)
			stable.quiet(t)
			victim.quiet(t)
		})
	}
}
