package pipe

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// TestLies has a peer name what it cannot have received: in HELLO no connection begins, later it ends, and the peer
// is told.
func TestLies(t *testing.T) {
	const first, all = 18, 18 + 58 // bytes of one record, and of both
	ack := func(n uint64) []byte { return wire.AppendAck(nil, n) }
	for _, c := range []struct {
		name  string
		hello uint64
		then  []byte
		why   string // of the error, "" = there is none
	}{
		{"between records", first, ack(all), ""},
		{"the end", all, nil, ""},
		{"the beginning again", 0, ack(0), ""},
		{"into a record, by ACK", first, ack(first + 1), ""},
		{"above", all + 1, nil, "were acknowledged and 76 sent"},
		{"far above", 1 << 63, nil, "were acknowledged and 76 sent"},
		{"into a header", first + 3, nil, "where no record ends"},
		{"into a body", all - 1, nil, "where no record ends"},
		{"above, by ACK", first, ack(all + 1), "77 bytes received, 76 were sent"},
		{"above, by PING", 0, wire.AppendPing(nil, wire.Ping, 1, all+1), "77 bytes received, 76 were sent"},
		{"far above, by PONG", 0, wire.AppendPing(nil, wire.Pong, 1, 1<<63), "bytes received, 76 were sent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, rigConfig{})
				n := g.worker()
				n.say(Bulk, wire.Data, 10)
				n.say(Bulk, wire.Data, 50)
				a, b := newLink(1, 1<<20, [2]int{-1, -1}).ends(true)
				if err := n.pipe.Start(g.session(worker, b, 0)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				n.pipe.Stop()
				_ = a.Close()
				l := newLink(2, 1<<20, [2]int{-1, -1})
				a, _ = l.ends(false)
				err := n.pipe.Start(g.session(worker, quickTry{linkEnd{l, worker}}, c.hello))
				synctest.Wait()
				if err == nil && c.then != nil {
					synctest.Wait() // until it was given all, which is what the peer lies about
					if _, err := a.Write(c.then); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if len(n.downs) > 0 {
						if err = n.downs[0]; n.downs[0].Reason != DownProtocol {
							t.Errorf("down as %s", n.downs[0].Reason)
						}
						if said := string(l.dir[worker].buf); c.why != "" &&
							!strings.HasSuffix(said, err.(*DownError).Err.Error()) {
							t.Errorf("the peer was told %q", said)
						}
					}
				}
				var bad *wire.Error
				switch {
				case c.why == "" && err != nil:
					t.Errorf("refused: %v", err)
				case c.why != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.why)):
					t.Errorf("the error is %v, expected %q", err, c.why)
				}
				n.pipe.Lock()
				if wrong := n.pipe.broken(); wrong != "" {
					t.Error(wrong)
				}
				n.pipe.Unlock()
				n.pipe.Stop()
				n.checkEmpty()
			})
		})
	}
}

// quickTry takes all of a try, and keeps what was written when it is closed.
type quickTry struct{ linkEnd }

func (q quickTry) TryWrite(p []byte) (int, error) { return q.Write(p) }
func (q quickTry) TryWriteBuffers(bufs [][]byte) (n int, err error) {
	for _, b := range bufs {
		n += len(b)
	}
	return n, q.WriteBuffers(bufs)
}
func (q quickTry) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end[q.i].closed = true
	q.cond.Broadcast()
	return nil
}

// TestAckBeforeSent has a peer acknowledge what is sealed but was not given to this connection yet.
func TestAckBeforeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		n := g.worker()
		for range 100 {
			n.say(Bulk, wire.Data, 2000)
		}
		l := newLink(1, 1<<20, [2]int{-1, -1})
		_, b := l.ends(false)
		if err := n.pipe.Start(g.session(worker, b, 0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.pipe.Stop()
		a, b := newLink(1, 1000, [2]int{-1, -1}).ends(false)
		if err := n.pipe.Start(g.session(worker, b, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Write(wire.AppendAck(nil, 150_000)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n.downReasons() != "protocol " {
			t.Errorf("down: %q", n.downReasons())
		}
		n.pipe.Stop()
		n.checkEmpty()
	})
}

// TestWriteKeepsItsBytes has a peer acknowledge what a write has in hand: the chunks are not used again before it is
// through.
func TestWriteKeepsItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{Config: Config{LogLimit: 4 << 20}})
		n := g.worker()
		for range 60 {
			n.say(Bulk, wire.Data, 1000)
		}
		l := newLink(1, 100, [2]int{-1, -1})
		a, b := l.ends(false)
		if err := n.pipe.Start(g.session(worker, b, 0)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n.pipe.Lock()
		sent := int(n.pipe.cursor)
		n.pipe.Unlock()
		if _, err := a.Write(wire.AppendAck(nil, uint64(sent))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if kept, _ := n.pipe.Log(); kept != 0 || sent != 60*1008 {
			t.Fatalf("%d bytes are kept of %d", kept, sent)
		}
		for range 600 {
			n.say(Bulk, wire.Data, 1000)
		}
		got := make([]byte, sent)
		if _, err := readFull(a, got); err != nil {
			t.Fatal(err)
		}
		for ; len(got) > 0; got = got[1008:] {
			if err := g.front().Record(wire.ParseHeader(got), got[wire.HeaderSize:1008]); err != nil {
				t.Fatal(err)
			}
		}
		n.pipe.Stop()
		n.checkEmpty()
	})
}

// stuck is a TryWriter whose tries return when the test says so.
type stuck struct {
	linkEnd
	entered, leave chan struct{}
}

func (s *stuck) TryWrite(p []byte) (int, error) { return s.TryWriteBuffers([][]byte{p}) }
func (s *stuck) TryWriteBuffers(bufs [][]byte) (int, error) {
	s.entered <- struct{}{}
	<-s.leave
	return tryEnd{s.linkEnd}.TryWriteBuffers(bufs)
}

// TestStopJoinsInlineWriters has Stop come while somebody writes inline, who then finds the connection dead.
func TestStopJoinsInlineWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		n := g.worker()
		s := &stuck{linkEnd{newLink(1, 1<<20, [2]int{-1, -1}), 1}, make(chan struct{}), make(chan struct{})}
		if err := n.pipe.Start(g.session(worker, s, 0)); err != nil {
			t.Fatal(err)
		}
		n.say(Bulk, wire.Data, 100)
		go n.pipe.Flush(ByFlush)
		<-s.entered
		stopped := make(chan struct{})
		go func() {
			n.pipe.Stop()
			close(stopped)
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("Stop did not wait for the inline writer")
		default:
		}
		n.say(Bulk, wire.Data, 100)
		n.pipe.Flush(ByFlush) // does not wait, though the connection is being stopped
		close(s.leave)
		<-stopped
		if n.downReasons() != "" {
			t.Errorf("Down was called after Stop: %s", n.downReasons())
		}
		g.finish(1, true)
	})
}

// waitingKeeper takes its time with the news.
type waitingKeeper struct {
	node
	in, out chan struct{}
}

func (k *waitingKeeper) Down(e *DownError) {
	k.node.Down(e)
	k.in <- struct{}{}
	<-k.out
}

// TestNothingIsHeardOfAReplacedConnection: Stop waits for a Down under way, even of the ticker.
func TestNothingIsHeardOfAReplacedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		k := &waitingKeeper{node{t: t}, make(chan struct{}), make(chan struct{})}
		p := g.worker().pipe
		p.keeper = k
		_, b := newLink(1, 100, [2]int{-1, -1}).ends(true)
		if err := p.Start(g.session(worker, b, 0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Hour)
		go p.Tick(testNow(), 0, 0)
		<-k.in
		stopped := make(chan struct{})
		for range 2 { // and Stop may be called twice
			go func() {
				p.Stop()
				stopped <- struct{}{}
			}()
		}
		synctest.Wait()
		select {
		case <-stopped:
			t.Fatal("Stop did not wait for Down")
		default:
		}
		close(k.out)
		<-stopped
		<-stopped
		if k.downReasons() != "silent " || g.worker().stats.Deaths.Snapshot()[DownSilent] != 1 {
			t.Errorf("down: %s", k.downReasons())
		}
		g.worker().checkEmpty()
	})
}

// TestDownOnce breaks a connection under everybody who may find out.
func TestDownOnce(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, rigConfig{})
			l := newLink(seed, 5000, [2]int{-1, -1})
			g.connect(l.ends(true))
			var all sync.WaitGroup
			for _, n := range g.nodes {
				for range 3 {
					all.Go(func() {
						for range 20 {
							n.say(Bulk, kinds[n.side][0], 500)
							n.pipe.Flush(ByFlush)
						}
					})
				}
				all.Go(func() { n.pipe.Tick(testNow()+int64(24*time.Hour), 0, 0) })
			}
			all.Go(l.cut)
			all.Wait()
			synctest.Wait()
			for _, n := range g.nodes {
				if len(n.downs) != 1 || n.pipe.Up() {
					t.Errorf("side %d: down %q", n.side, n.downReasons())
				}
			}
			g.finish(seed, true)
		})
	}
}

// TestDrainAndAway: GOAWAY(draining) comes first on each connection and ends nothing, every other GOAWAY ends it.
func TestDrainAndAway(t *testing.T) {
	for _, try := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, rigConfig{})
			w, f := g.worker(), g.front()
			g.connect(newLink(1, 1000, [2]int{-1, -1}).ends(try))
			w.pipe.Drain("later")
			synctest.Wait()
			for range 3 {
				l := newLink(1, 1000, [2]int{-1, -1})
				a, b := l.ends(try)
				received := f.pipe.Stop()
				w.say(Bulk, wire.Data, 10)
				g.accept(b, received)
				synctest.Wait()
				if h := wire.ParseHeader(l.dir[worker].buf); h.Kind != wire.GoAway {
					t.Fatalf("a connection while the worker drains begins with %v", h.Kind)
				}
				if err := f.pipe.Start(g.session(front, a, w.pipe.Received())); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if f.drains != 4 || !g.up() {
				t.Fatalf("the frontend was told %d times, down: %s", f.drains, f.downReasons())
			}
			w.pipe.Away(wire.AwayClosing, "enough")
			synctest.Wait()
			var away *AwayError
			if len(f.downs) != 1 || f.downs[0].Reason != DownRefused || !errors.As(f.downs[0], &away) ||
				away.Code != wire.AwayClosing || away.Text != "enough" {
				t.Fatalf("down: %v", f.downs)
			}
			g.finish(1, try)
		})
	}
}

// TestDiscard gives back everything, whatever state it is in, and a Flush that comes later does nothing.
func TestDiscard(t *testing.T) {
	for _, connected := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, rigConfig{})
			n := g.worker()
			if connected {
				g.connect(newLink(1, 3000, [2]int{-1, -1}).ends(true))
			}
			o := &source{n: n, left: 100}
			o.owed.Owner = o
			for i := range 500 {
				n.say(Place(i%2), kinds[worker][i%7], i*7)
				n.pipe.Flush(ByFlush)
			}
			n.pipe.Owe(&o.owed, Bulk)
			g.stop()
			n.checkEmpty()
			n.pipe.Flush(ByFlush)
			n.pipe.FlushForgotten()
			n.pipe.Tick(testNow(), 0, 0)
			n.pipe.Ping()
			if !n.pipe.Settled() || o.owed.in != nil {
				t.Error("something is left after Discard")
			}
			g.front().checkEmpty()
		})
	}
}

// TestFlushForgotten writes what nobody has flushed, and counts only that.
func TestFlushForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{Config: Config{Gap: 2 * time.Millisecond}})
		n := g.worker()
		g.connect(newLink(1, 1<<20, [2]int{-1, -1}).ends(true))
		for range 6 {
			n.say(Bulk, wire.Data, 10)
			n.pipe.Flush(ByFlush)
			n.pipe.FlushForgotten()
		}
		if n.stats.Forgotten.Load() != 0 {
			t.Error("what waits for the gap counts as forgotten")
		}
		time.Sleep(time.Second)
		n.say(Bulk, wire.Data, 10)
		time.Sleep(time.Second)
		if n.behind() != 18 {
			t.Fatal("written without a Flush")
		}
		n.pipe.FlushForgotten()
		if n.stats.Forgotten.Load() != 1 || n.behind() != 0 {
			t.Errorf("%d flushes were forgotten, %d bytes wait", n.stats.Forgotten.Load(), n.behind())
		}
		g.finish(1, true)
	})
}

// TestTwoGoroutinesAConnection counts them.
func TestTwoGoroutinesAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{Config: Config{Gap: time.Millisecond}})
		for range 5 {
			g.connect(newLink(1, 1000, [2]int{-1, -1}).ends(true))
			for _, n := range g.nodes {
				n.say(Bulk, kinds[n.side][0], 100)
				n.pipe.Flush(ByFlush)
			}
			synctest.Wait()
			stacks := make([]byte, 1<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			n := 0
			for s := range strings.SplitSeq(string(stacks), "\n\n") {
				if strings.Contains(s, "/pipe.(*Pipe).") {
					n++
				}
			}
			if n != 4 {
				t.Fatalf("two ends have %d goroutines:\n%s", n, stacks)
			}
		}
		g.finish(1, true)
	})
}
