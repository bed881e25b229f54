package responseplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// bench is a Frontend and a worker process on a network in fake time, without a registry.
type bench struct {
	net   *memory.Network
	front *Frontend
	log   *lines
	node  Descriptor // of the worker process
	id    NodeID
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{net: memory.NewNetwork(memory.Config{Proves: true}), log: &lines{}}
	ids := [2]*transport.Identity{}
	for i := range ids {
		var err error
		if ids[i], err = transport.NewIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	front, work := b.net.Transport(ids[0].ID), b.net.Transport(ids[1].ID)
	w, err := NewWorker(WorkerConfig{Identity: ids[1], Transports: []transport.Transport{work},
		BindAddr: "127.0.0.1:7000", ServerEndpoints: 2})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.node, b.id = w.Descriptor(), ids[1].ID
	b.front, err = NewFrontend(FrontendConfig{Identity: ids[0], Transports: []transport.Transport{front},
		ResumeTimeout: time.Second, KeepVanished: -1,
		Logger: slog.New(slog.NewTextHandler(b.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{b.front, w, front, work} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return b
}

// put puts a record of the process, with other endpoints if some are given.
func (b *bench) put(worker string, endpoints ...string) {
	d := b.node
	if len(endpoints) > 0 {
		d.Planes = []discovery.Plane{{Name: transport.PlaneMemory, Endpoints: endpoints}}
	}
	b.front.apply(discovery.Event{Kind: discovery.Put, Worker: discovery.Worker{ID: worker, Models: []string{"m"},
		Node: d}})
}

func (b *bench) remove(worker string) {
	b.front.apply(discovery.Event{Kind: discovery.Delete, Worker: discovery.Worker{ID: worker}})
}

func (b *bench) up(t *testing.T, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := b.front.AwaitPeer(ctx, b.id); err != nil {
		t.Fatal(err)
	}
}

// away takes the worker off the network for longer than its link lives.
func (b *bench) away() {
	for _, a := range b.node.Planes[0].Endpoints {
		b.net.Silence(a)
	}
	b.net.Cut(nil)
	time.Sleep(20 * time.Second)
	for _, a := range b.node.Planes[0].Endpoints {
		b.net.Allow(a)
	}
}

const disagree = "two records of one process"

// A record with a wrong address takes its process out of service neither while it is there nor after it has gone.
func TestRecordWithAWrongAddress(t *testing.T) {
	const wrong = "127.0.0.1:9"
	for name, c := range map[string]struct {
		with  func(b *bench) // the wrong record comes, and goes or stays
		warns int
	}{
		"comes and is deleted": {func(b *bench) { b.put("bad", wrong); b.remove("bad") }, 1},
		"comes and stays":      {func(b *bench) { b.put("bad", wrong) }, 1},
		"comes and is mended":  {func(b *bench) { b.put("bad", wrong); b.put("bad") }, 1},
		"comes twice":          {func(b *bench) { b.put("bad", wrong); b.put("bad", wrong); b.put("bad", wrong) }, 1},
		"goes to another process": {func(b *bench) {
			b.put("bad", wrong)
			d := b.node
			d.ID = transport.NodeID{7}.String()
			b.front.apply(discovery.Event{Kind: discovery.Put, Worker: discovery.Worker{ID: "bad",
				Models: []string{"m"}, Node: d}})
		}, 1},
		"a good one becomes wrong and goes": {func(b *bench) { b.put("w1", wrong); b.remove("w1") }, 1},
		"one that does not hold":            {func(b *bench) { b.put("bad", "0.0.0.0:9") }, 0},
		"one of no use here": {func(b *bench) {
			d := b.node
			d.Planes = []discovery.Plane{{Name: "rdma", Endpoints: []string{wrong}}}
			b.front.apply(discovery.Event{Kind: discovery.Put, Worker: discovery.Worker{ID: "bad",
				Models: []string{"m"}, Node: d}})
		}, 1},
		"several, and then agreement, and again": {func(b *bench) {
			b.put("bad", wrong)
			b.put("worse", "127.0.0.1:10")
			b.remove("worse")
			b.remove("bad")
			b.put("bad", wrong)
		}, 2},
		"the other ones go": {func(b *bench) { b.put("bad", wrong); b.remove("w1"); b.remove("w2") }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				for i := range 3 {
					b.put(fmt.Sprint("w", i))
				}
				b.up(t, time.Second)
				c.with(b)
				if n := b.log.count(disagree); n != c.warns {
					t.Errorf("it was said %d times that records disagree, expected %d", n, c.warns)
				}
				time.Sleep(time.Second)
				if !b.front.recv.Up(b.id) {
					t.Error("the link is down")
				}
				b.net.Cut(nil)
				b.up(t, 100*time.Millisecond)
				b.away()
				b.up(t, 20*time.Second)
			})
		})
	}
}

// The first record is the wrong one: the process is reached as soon as another one says better.
func TestWrongAddressFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put("bad", "127.0.0.1:9")
		time.Sleep(time.Minute)
		b.put("w0")
		b.up(t, 100*time.Millisecond)
		b.remove("w0") // only the wrong one is left; the link stays
		time.Sleep(time.Minute)
		if !b.front.recv.Up(b.id) {
			t.Error("the link is down")
		}
		b.put("w0")
		b.away()
		b.up(t, 20*time.Second)
	})
}

// A process that no record names is dialled no more, and a record that comes back makes it new; one with a link is kept
// for a minute.
func TestUnnamedProcessIsNotDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		dead := "127.0.0.1:9"
		b.net.Silence(dead)
		d := b.node
		d.ID = transport.NodeID{7}.String()
		d.Planes = []discovery.Plane{{Name: transport.PlaneMemory, Endpoints: []string{dead}}}
		b.put("w0")
		b.up(t, time.Second)
		b.front.apply(discovery.Event{Kind: discovery.Put, Worker: discovery.Worker{ID: "dead", Models: []string{"m"},
			Node: d}})
		time.Sleep(time.Minute)
		b.remove("dead")
		b.remove("w0")
		step := func(d time.Duration) {
			time.Sleep(d)
			b.front.sweep(time.Now())
			b.front.reap(time.Now())
		}
		step(reapUnlinked - time.Nanosecond)
		if n := len(b.front.Peers()); n != 2 {
			t.Fatalf("%d processes are known, expected both for a moment", n)
		}
		step(time.Nanosecond)
		if p := b.front.Peers(); len(p) != 1 || p[0].ID != b.id {
			t.Fatalf("known: %+v", p)
		}
		b.put("w0")
		b.remove("w0")
		step(reapAfter - time.Nanosecond)
		if n := len(b.front.Peers()); n != 1 {
			t.Fatal("the process with a link was forgotten before its time")
		}
		step(time.Nanosecond)
		if p := b.front.Peers(); len(p) != 0 {
			t.Errorf("known: %+v", p)
		}
		b.put("w0")
		b.up(t, 100*time.Millisecond)
	})
}

// AddPeer replaces what it said before, beside what records say.
func TestAddPeerBesideRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := b.node
		d.Planes = []discovery.Plane{{Name: transport.PlaneMemory, Endpoints: []string{"127.0.0.1:9"}}}
		if _, err := b.front.AddPeer(d); err != nil {
			t.Fatal(err)
		}
		if _, err := b.front.AddPeer(b.node); err != nil {
			t.Fatal(err)
		}
		b.up(t, 100*time.Millisecond)
		if n := len(b.front.nodes[b.id].addresses); n != 1 || b.log.count(disagree) != 0 {
			t.Errorf("%d addresses, log %s", n, b.log.b.String())
		}
		b.put("w0", "127.0.0.1:9")
		b.away()
		b.up(t, 20*time.Second)
		zero := b.node
		zero.ID = transport.NodeID{}.String()
		if _, err := b.front.AddPeer(zero); err == nil || errors.Is(err, ErrClosed) {
			t.Errorf("a node without identity: %v", err)
		}
	})
}
