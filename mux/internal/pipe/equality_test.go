package pipe

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// modes are the ways in which a pipe can write.
var modes = []struct {
	name string
	try  bool
	cfg  rigConfig
}{
	{"inline", true, rigConfig{Config: Config{Gap: 2 * time.Millisecond}}},
	{"inline, no gap", true, rigConfig{}},
	{"writer", false, rigConfig{Config: Config{Gap: 2 * time.Millisecond}}},
	{"writer, no gap", false, rigConfig{}},
	{"NoInline", true, rigConfig{Config: Config{NoInline: true, Gap: time.Millisecond}}},
	{"NoUrgent", true, rigConfig{Config: Config{NoUrgent: true, Gap: time.Millisecond}}},
	{"NoUrgent, writer, no gap", false, rigConfig{Config: Config{NoUrgent: true}}},
	{"small log", true, rigConfig{Config: Config{LogLimit: minLog}}},
	{"no budget", true, rigConfig{limit: 1, held: 1, Config: Config{LogLimit: 4 << 20, Gap: time.Millisecond}}},
	{"no budget, writer", false, rigConfig{limit: 1, held: 1, Config: Config{LogLimit: 4 << 20}}},
}

// inModes runs f in each mode, with time that does not pass while anybody works.
func inModes(t *testing.T, f func(t *testing.T, g *rig, try bool)) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, newRig(t, m.cfg), m.try) })
		})
	}
}

// finish lets everything come to rest over good connections and checks it.
func (g *rig) finish(seed uint64, try bool) {
	g.t.Helper()
	defer g.stop()
	for round := uint64(0); !g.settled(); round++ {
		if round == 10 {
			g.t.Fatalf("not settled: %s", g)
		}
		if !g.up() {
			g.connect(newLink(seed+round, 1+int(seed+round)%100_000, [2]int{-1, -1}).ends(try))
		}
		g.front().pipe.Flush(ByFlush)
		g.worker().pipe.Flush(ByFlush)
		time.Sleep(time.Second)
		g.front().pipe.Ping() // both learn what the other has
		time.Sleep(time.Second)
	}
	g.check()
}

func (g *rig) String() (s string) {
	for _, n := range g.nodes {
		n.pipe.Lock()
		p := n.pipe
		s += fmt.Sprintf("\nside %d: unsent %d, owed %d, [%d, %d, %d), full %v, flushed %v, writing %v, received %d, "+
			"downs %v", n.side, p.unsent(),
			p.owed[Bulk].n+p.owed[Urgent].n, p.acked, p.cursor, p.sealed, p.full(), p.flushed, p.writing,
			p.received.Load(), n.downs)
		n.pipe.Unlock()
	}
	return s
}

// TestCutAtEveryByte has the first connection die after each byte of either direction, while both sides talk. The modes
// between the first and the fourth take one byte in five, each another one.
func TestCutAtEveryByte(t *testing.T) {
	for i, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			step := 5
			if i == 0 || i == 3 {
				step = 1
			}
			for side := range 2 {
				for at := i % step; ; at += step {
					reached := false
					synctest.Test(t, func(t *testing.T) {
						g := newRig(t, m.cfg)
						cut := [2]int{-1, -1}
						cut[side] = at
						l := newLink(uint64(at), 64, cut)
						g.connect(l.ends(m.try))
						r := rand.New(rand.NewPCG(uint64(side), 2))
						for range 12 {
							for _, n := range g.nodes {
								n.say(Place(r.IntN(2)), kinds[n.side][r.IntN(len(kinds[n.side]))], r.IntN(40))
								n.pipe.Flush(ByFlush)
							}
							if r.IntN(3) == 0 {
								synctest.Wait()
							}
						}
						time.Sleep(time.Second)
						reached = l.passed(side) >= at
						g.finish(uint64(at), m.try)
					})
					if !reached || t.Failed() {
						break
					}
				}
			}
		})
	}
}

// TestTakeoverAtEveryStep replaces the connection after each step of a conversation, at times by one of which only the
// worker has heard, as when its answer is lost.
func TestTakeoverAtEveryStep(t *testing.T) {
	inModes(t, func(t *testing.T, g *rig, try bool) {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, 3))
			for step := range 60 {
				limit := 1 + r.IntN(1<<(2+r.IntN(16)))
				if r.IntN(4) == 0 {
					lost := newLink(seed, limit, [2]int{-1, -1})
					_, b := lost.ends(try)
					g.accept(b, g.front().pipe.Stop())
				}
				g.connect(newLink(uint64(step), limit, [2]int{-1, -1}).ends(try))
				for range 1 + r.IntN(6) {
					n := g.nodes[r.IntN(2)]
					n.sayRandom(r)
					if r.IntN(2) == 0 {
						n.pipe.Flush(ByFlush)
					}
				}
				switch r.IntN(4) {
				case 0:
					synctest.Wait()
				case 1:
					time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
				}
			}
		}
		g.finish(1, try)
	})
}

// TestStorm has both sides talk from several goroutines while connections die and are replaced all the time.
func TestStorm(t *testing.T) {
	inModes(t, func(t *testing.T, g *rig, try bool) {
		var talkers sync.WaitGroup
		for _, n := range g.nodes {
			for i := range 3 {
				talkers.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), uint64(n.side)))
					for range 150 {
						n.sayRandom(r)
						if r.IntN(3) > 0 {
							n.pipe.Flush(ByFlush)
						}
						if r.IntN(4) == 0 {
							time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
						}
						for n.behind() > 1<<20 {
							time.Sleep(time.Millisecond)
						}
					}
				})
			}
		}
		r := rand.New(rand.NewPCG(7, 7))
		for i := range 150 {
			cut := [2]int{-1, -1}
			if r.IntN(2) == 0 {
				cut[r.IntN(2)] = r.IntN(1 << (4 + r.IntN(15)))
			}
			g.connect(newLink(uint64(i), 1+r.IntN(1<<(3+r.IntN(16))), cut).ends(try))
			time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
		}
		for !g.up() || g.front().behind()+g.worker().behind() > 1<<20 {
			g.connect(newLink(1, 1<<20, [2]int{-1, -1}).ends(try))
			time.Sleep(time.Millisecond)
		}
		talkers.Wait()
		g.finish(2, try)
	})
}

// behind is how many bytes wait.
func (n *node) behind() int {
	_, unsent := n.pipe.Log()
	return unsent
}

// TestFullLogsFreeEachOther has both sides with a full log at the same time, over connections that hold little.
func TestFullLogsFreeEachOther(t *testing.T) {
	inModes(t, func(t *testing.T, g *rig, try bool) {
		for _, n := range g.nodes {
			for range 600 { // 1.2 MB
				n.say(Bulk, kinds[n.side][0], 2000)
			}
			n.pipe.Flush(ByFlush)
		}
		l := newLink(1, 32<<10, [2]int{-1, -1})
		g.connect(l.ends(try))
		time.Sleep(time.Second)
		for _, n := range g.nodes {
			if n.behind() > 0 {
				t.Errorf("a full log was not freed: %s", g)
			}
			if limit := min(n.pipe.cfg.LogLimit, 2<<20); limit < 1<<20 && n.stats.AcksAlone.Load()+
				n.stats.AcksAlong.Load() == 0 {
				t.Error("no ACK was sent")
			}
		}
		g.finish(1, try)
	})
}

// TestLogKeepsItsLimit has a peer that never acknowledges: no more than the limit is sealed, control goes on, and an
// ACK lets the rest go.
func TestLogKeepsItsLimit(t *testing.T) {
	inModes(t, func(t *testing.T, g *rig, try bool) {
		n := g.worker()
		l := newLink(1, 8<<20, [2]int{-1, -1})
		a, b := l.ends(try)
		if err := n.pipe.Start(g.session(worker, b, 0)); err != nil {
			t.Fatal(err)
		}
		defer g.stop()
		for range 3000 {
			n.say(Bulk, wire.Data, 2000)
			n.pipe.Flush(ByFlush)
		}
		time.Sleep(time.Second)
		limit := n.pipe.cfg.LogLimit
		if n.budget.over() {
			limit = minLog
		}
		kept, unsent := n.pipe.Log()
		if kept > limit || kept < limit-wire.MaxData || unsent == 0 {
			t.Fatalf("%d bytes of at most %d are kept, %d wait", kept, limit, unsent)
		}
		n.pipe.Ping()
		time.Sleep(time.Second)
		if got := l.queued(worker); got != kept+wire.HeaderSize+wire.PingSize {
			t.Fatalf("%d bytes are on their way, expected the log of %d and a PING", got, kept)
		}
		if _, err := a.Write(wire.AppendAck(nil, uint64(kept))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if again, _ := n.pipe.Log(); again <= limit-wire.MaxData {
			t.Fatalf("after an ACK only %d bytes are in the log", again)
		}
		if full := time.Duration(n.stats.FullNanos.Load()); full < 2*time.Second-50*time.Millisecond ||
			full > 2*time.Second {
			t.Errorf("the log was full for %v, counted %v", 2*time.Second, full)
		}
		n.pipe.Stop()
		n.checkEmpty()
	})
}
