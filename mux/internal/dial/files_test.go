package dial

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

func TestFileLimitError(t *testing.T) {
	e := &FileLimitError{Limit: 256, Share: 192, Lanes: 512, Nodes: 512, Need: 688, Err: syscall.EMFILE}
	for _, want := range []string{"256 files", "RLIMIT_NOFILE", "at most 192", "512 lanes to 512 nodes", "at least 688",
		"ulimit -n", "too many open files"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	if !errors.Is(e, syscall.EMFILE) {
		t.Error("the cause is lost")
	}
}

// What the error says to need is enough, and not much less is.
func TestFileLimitNeed(t *testing.T) {
	for _, c := range []struct{ nodes, lanes int }{{1, 1}, {3, 1}, {100, 1}, {512, 1}, {1, 2}, {7, 4}, {512, 4},
		{64, 16}} {
		r := New(Config{Lanes: c.lanes}, nil, plain{})
		for i := range c.nodes {
			id := transport.NodeID{1, byte(i), byte(i >> 8)}
			r.peers[id] = &peer{recv: r, id: id,
				known: addresses{usable: []Peer{{ID: id,
					Planes: []PeerPlane{{Plane: transport.PlaneTCP, Endpoints: []string{"h:1"}}}}}}}
		}
		var e *FileLimitError
		if !errors.As(r.fileLimit(nil), &e) || e.Nodes != c.nodes || e.Lanes != c.nodes*c.lanes {
			t.Fatalf("%+v: %+v", c, e)
		}
		fits := func(limit uint64) bool {
			return share(limit, 0) >= int64(c.nodes) && (c.lanes == 1 || share(limit, 1) >= int64(c.nodes*c.lanes))
		}
		if !fits(e.Need) || e.Need > 16 && fits(e.Need-12) {
			t.Errorf("%+v: need %d, with which it fits: %t, and with 12 less: %t", c, e.Need, fits(e.Need),
				fits(e.Need-12))
		}
	}
}

type plain struct{ transport.Transport }

func (plain) Plane() string { return transport.PlaneTCP }

// Lanes for which no descriptor is left are not dialled, that is said once for all nodes, and it is no evidence of
// anything; further lanes of a node leave room for other nodes.
func TestFilesRunOut(t *testing.T) {
	limit, ok := transport.FileLimit()
	if !ok {
		t.Skip("no limit is known here")
	}
	inFakeTime(t, "", func(t *testing.T) {
		net := memory.NewNetwork(memory.Config{Plane: transport.PlaneTCP})
		w := newWorker(t, workerID)
		addresses := w.listen(net.Transport(workerID), "worker:0", 1)
		log := &lines{}
		f := newFront(t,
			Config{Lanes: 3, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))},
			net.Transport(frontID))
		f.files.taken.Store(share(limit, 0)) // by other nodes
		add(t, f, Peer{ID: workerID, Planes: []PeerPlane{{transport.PlaneTCP, addresses}}})
		time.Sleep(9 * time.Second)
		var few *FileLimitError
		if st := f.state(workerID); st.Up || !errors.As(st.Err, &few) || few.Lanes != 3 || few.Nodes != 1 ||
			few.Limit != limit {
			t.Errorf("%+v", st)
		}
		if n := f.transports[0].Counters().Dials; n != 0 || log.count("need a limit of at least") != 1 ||
			log.count("") != 1 {
			t.Errorf("%d dials, %d lines of the log", n, log.count(""))
		}
		f.files.taken.Add(-1) // one is given back
		awaitUp(t, f, workerID, guard)
		time.Sleep(5 * time.Second)
		k := f.last()
		if st := f.state(workerID); st.Lanes != 1 || k.count("lost") != 0 {
			t.Errorf("%+v; %s", st, k)
		}
		net.Cut(nil) // the descriptor is taken again at once
		waitFor(t, "the lane", func() bool { return k.count("up 0") == 2 })
		f.files.taken.Store(1)
		waitFor(t, "all lanes", func() bool { return f.state(workerID).Lanes == 3 })
		if n := f.files.taken.Load(); n != 3 {
			t.Errorf("%d descriptors are taken", n)
		}
		f.close("")
		if n := f.files.taken.Load(); n != 0 {
			t.Errorf("%d descriptors are left", n)
		}
	})
	inFakeTime(t, "the system says so", func(t *testing.T) {
		net := memory.NewNetwork(memory.Config{Plane: transport.PlaneTCP})
		net.Refuse("worker:1", syscall.EMFILE)
		f := newFront(t, Config{}, net.Transport(frontID))
		add(t, f, Peer{ID: workerID, Planes: []PeerPlane{{transport.PlaneTCP, []string{"worker:1"}}}})
		time.Sleep(time.Second)
		var few *FileLimitError
		if st := f.state(workerID); !errors.As(st.Err, &few) || !errors.Is(st.Err, syscall.EMFILE) ||
			f.files.taken.Load() != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// lines keeps lines of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lines) count(with string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if strings.Contains(s, with) {
			n++
		}
	}
	return n
}
