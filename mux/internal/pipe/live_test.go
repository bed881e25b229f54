package pipe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// overMemory connects a rig over plane memory.
func (g *rig) overMemory(t *testing.T, n *memory.Network) (dialled *memory.Conn) {
	t.Helper()
	ft, wt := n.Transport(transport.NodeID{1}), n.Transport(transport.NodeID{2})
	ln, err := wt.Listen(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ft.Dial(context.Background(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	g.connect(a, b)
	return n.Conns()[0]
}

// arrivals is a frontend's handler that notes when records arrive.
type arrivals struct {
	node
	begin time.Time
	at    []time.Duration
}

func (a *arrivals) Record(wire.Header, []byte) error {
	a.at = append(a.at, time.Since(a.begin))
	return nil
}

// TestGap has bulk wait for the gap, and nothing else.
func TestGap(t *testing.T) {
	const gap = 2 * time.Millisecond
	flushes := func(g *rig, at Place, n, size int) {
		for range n {
			g.worker().say(at, wire.Data, size)
			g.worker().pipe.Flush(ByFlush)
		}
	}
	for _, c := range []struct {
		name string
		cfg  Config
		do   func(g *rig)
		want []time.Duration
	}{
		{"a burst, then one a gap", Config{Gap: gap}, func(g *rig) {
			for range 10 {
				flushes(g, Bulk, 1, 10)
				time.Sleep(gap / 2)
			}
		}, []time.Duration{0, gap / 2, gap, 3 * gap / 2, 2 * gap, 5 * gap / 2, 3 * gap, 7 * gap / 2, 4 * gap, 5 * gap}},
		{"what came meanwhile goes with it", Config{Gap: gap}, func(g *rig) { flushes(g, Bulk, 7, 10) },
			[]time.Duration{0, 0, 0, 0, 0, gap, gap}},
		{"slower than the gap never waits", Config{Gap: gap}, func(g *rig) {
			for range 7 {
				flushes(g, Bulk, 1, 10)
				time.Sleep(gap)
			}
		}, []time.Duration{0, gap, 2 * gap, 3 * gap, 4 * gap, 5 * gap, 6 * gap}},
		{"urgent never waits, and takes bulk along", Config{Gap: gap}, func(g *rig) {
			flushes(g, Bulk, 6, 10)
			time.Sleep(gap / 4)
			flushes(g, Urgent, 1, 10)
			synctest.Wait()
			flushes(g, Urgent, 1, 10)
		}, []time.Duration{0, 0, 0, 0, 0, gap / 4, gap / 4, gap / 4}},
		{"who hurries does not wait", Config{Gap: gap}, func(g *rig) {
			flushes(g, Bulk, 5, 10)
			g.worker().pipe.Lock()
			g.worker().pipe.Hurry()
			g.worker().pipe.Unlock()
			flushes(g, Bulk, 1, 10)
		}, []time.Duration{0, 0, 0, 0, 0, 0}},
		{"a write's worth does not wait", Config{Gap: gap}, func(g *rig) {
			flushes(g, Bulk, 5, 10)
			flushes(g, Bulk, 2, 40<<10)
		}, []time.Duration{0, 0, 0, 0, 0, 0, gap}},
		{"no gap", Config{}, func(g *rig) { flushes(g, Bulk, 9, 10) }, make([]time.Duration, 9)},
		{"without urgent all wait", Config{Gap: gap, NoUrgent: true}, func(g *rig) { flushes(g, Urgent, 6, 10) },
			[]time.Duration{0, 0, 0, 0, 0, gap}},
	} {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", inline ", try), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newRig(t, rigConfig{Config: c.cfg})
					h := &arrivals{node: node{t: t}, begin: time.Now()}
					g.front().pipe.handler = h
					g.overMemory(t, memory.NewNetwork(memory.Config{TryWrite: try}))
					synctest.Wait()
					c.do(g)
					time.Sleep(time.Second)
					g.stop()
					if !try { // the writer may find several flushes at once, and so make fewer writes
						if len(h.at) != len(c.want) {
							t.Fatalf("%d records arrived, expected %d", len(h.at), len(c.want))
						}
						for i, at := range h.at {
							if at > c.want[i] {
								t.Errorf("records arrived at %v, expected %v at the latest", h.at, c.want)
								break
							}
						}
					} else if !slices.Equal(h.at, c.want) {
						t.Errorf("records arrived at %v, expected %v", h.at, c.want)
					}
				})
			})
		}
	}
}

// ticks calls Tick of both sides every 50 ms for a time.
func (g *rig) ticks(d time.Duration, busy int64) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
		for _, n := range g.nodes {
			n.pipe.Tick(testNow(), 0, busy)
		}
	}
}

var testPings = wire.Pings{Idle: 5 * time.Second, IdleSilence: 15 * time.Second, Active: time.Second,
	ActiveSilence: 3 * time.Second}

// live runs a rig with the usual PINGs over plane memory.
func live(t *testing.T, f func(t *testing.T, g *rig, dialled *memory.Conn)) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprint("inline ", try), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, rigConfig{Config: Config{Gap: 2 * time.Millisecond}})
				g.pings = testPings
				c := g.overMemory(t, memory.NewNetwork(memory.Config{TryWrite: try, Latency: 10 * time.Millisecond}))
				f(t, g, c)
				g.stop()
			})
		})
	}
}

// TestPings counts PINGs, whose answers say how far the peer is and how long they took.
func TestPings(t *testing.T) {
	live(t, func(t *testing.T, g *rig, _ *memory.Conn) {
		begin := testNow()
		for _, n := range g.nodes {
			n.say(Bulk, kinds[n.side][0], 10)
			n.pipe.Flush(ByFlush)
		}
		g.ticks(4900*time.Millisecond, 0)
		if w, f := g.worker().stats.BytesIn.Load(), g.front().stats.BytesIn.Load(); w != 18 || f != 18 {
			t.Fatalf("before the first PING %d and %d bytes were read", w, f)
		}
		g.ticks(200*time.Millisecond, 0)
		if !g.settled() {
			t.Errorf("PING and PONG do not acknowledge: %s", g)
		}
		if rtt := g.front().pipe.RTT(); rtt != 20*time.Millisecond {
			t.Errorf("round trip %v, the latency is 10 ms each way", rtt)
		}
		for _, sent := range []int64{testNow() + 1, begin - 1, -1} { // that were never sent on this connection
			body := wire.AppendPing(nil, wire.Pong, uint64(sent), 0)[wire.HeaderSize:]
			if err := g.front().pipe.uncounted(wire.Pong, body); err != nil {
				t.Error(err)
			}
		}
		if at := time.Duration(g.front().pipe.Ponged() - begin); at != 5*time.Second {
			t.Errorf("the PING that was answered is of %v", at)
		}
		g.ticks(30*time.Second, testNow()) // open streams
		if n := (g.worker().stats.BytesIn.Load() - 18) / (wire.HeaderSize + wire.PingSize); n < 29 || n > 32 {
			t.Errorf("%d PINGs in 30 s", n)
		}
		if !g.up() || g.front().downReasons()+g.worker().downReasons() != "" {
			t.Errorf("down: %s %s", g.front().downReasons(), g.worker().downReasons())
		}
	})
}

// TestSilence finds a peer of which nothing arrives, after the time that was agreed on and not before.
func TestSilence(t *testing.T) {
	for _, busy := range []bool{false, true} {
		live(t, func(t *testing.T, g *rig, c *memory.Conn) {
			g.ticks(6*time.Second, 0)
			limit, since := testPings.IdleSilence, int64(0)
			if busy {
				limit = testPings.ActiveSilence
				c.Peer().Stall()
				g.ticks(10*time.Second, 0)
				since = testNow() // the first stream is opened after 10 s of silence
			}
			c.Stall()
			c.Peer().Stall()
			g.ticks(limit-1200*time.Millisecond, since)
			if !g.up() {
				t.Fatalf("down early: %s", g)
			}
			g.ticks(1300*time.Millisecond, since)
			for _, n := range g.nodes {
				if n.side == worker && busy {
					continue // heard PINGs until a moment ago
				}
				if n.pipe.Up() || n.downReasons() != "silent " {
					t.Errorf("side %d: %q", n.side, n.downReasons())
				}
			}
		})
	}
}

// TestLateTick does not take this side's own stop for the peer's silence.
func TestLateTick(t *testing.T) {
	live(t, func(t *testing.T, g *rig, c *memory.Conn) {
		c.Stall()
		c.Peer().Stall()
		g.ticks(2900*time.Millisecond, 1)
		time.Sleep(20 * time.Second)
		for _, n := range g.nodes {
			n.pipe.Tick(testNow(), 20*time.Second, 1)
		}
		g.ticks(2900*time.Millisecond, 1)
		if !g.up() {
			t.Fatalf("a late tick counts as silence: %s", g)
		}
		g.ticks(200*time.Millisecond, 1)
		if g.front().pipe.Up() || g.worker().pipe.Up() {
			t.Error("a silent peer was not found after a late tick")
		}
	})
}

// slow is a handler that takes its time.
type slow struct {
	node
	takes time.Duration
}

func (s *slow) Record(wire.Header, []byte) error {
	time.Sleep(s.takes)
	return nil
}

// TestSlowIsNotDead has a sink that takes ten times as long as a peer may be silent, while nothing can arrive.
func TestSlowIsNotDead(t *testing.T) {
	live(t, func(t *testing.T, g *rig, c *memory.Conn) {
		g.front().pipe.handler = &slow{node: node{t: t}, takes: 30 * time.Second}
		g.worker().say(Urgent, wire.Data, 10)
		g.worker().pipe.Flush(ByFlush)
		g.ticks(100*time.Millisecond, 1)
		c.Peer().Stall()
		g.ticks(32*time.Second, 1)
		if !g.front().pipe.Up() {
			t.Fatal("the frontend's own sink counted as the worker's silence")
		}
		if !g.worker().pipe.Up() {
			t.Fatal("the frontend's slow sink counted as the frontend's silence")
		}
		g.ticks(2*time.Second, 1)
		if g.front().pipe.Up() {
			t.Error("the silence after the sink was not found")
		}
	})
}

// TestAcks are sent alone after 64 KiB, with the gap, and within a tick while the peer drains.
func TestAcks(t *testing.T) {
	live(t, func(t *testing.T, g *rig, _ *memory.Conn) {
		w, f := g.worker(), g.front()
		w.say(Bulk, wire.Data, 64<<10-100)
		w.pipe.Flush(ByFlush)
		g.ticks(time.Second, 0)
		if kept, _ := w.pipe.Log(); kept != 64<<10-100+8 || f.stats.AcksAlone.Load() != 0 {
			t.Fatalf("%d bytes are kept, %d ACKs", kept, f.stats.AcksAlone.Load())
		}
		w.say(Bulk, wire.Data, 100)
		w.pipe.Flush(ByFlush)
		time.Sleep(30 * time.Millisecond)
		if kept, _ := w.pipe.Log(); kept != 0 || f.stats.AcksAlone.Load() != 1 {
			t.Fatalf("%d bytes are kept, %d ACKs", kept, f.stats.AcksAlone.Load())
		}
		w.pipe.Drain("later")
		time.Sleep(20 * time.Millisecond)
		w.say(Bulk, wire.End, 40)
		w.pipe.Flush(ByFlush)
		time.Sleep(20 * time.Millisecond)
		g.ticks(100*time.Millisecond, 0)
		if kept, _ := w.pipe.Log(); kept != 0 || f.drains != 1 {
			t.Fatalf("a draining worker still keeps %d bytes after a tick, the frontend was told %d times", kept,
				f.drains)
		}
	})
}
