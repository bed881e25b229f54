package dial

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/tcp"
)

func TestWorkerThatSaysNothing(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{}, memory.Config{}, func(c *workerConn) bool { <-c.w.ctx.Done(); return false })
		time.Sleep(time.Minute)
		if st := p.state(workerID); st.Up || st.Err == nil {
			t.Errorf("state %+v", st)
		}
		if n := len(p.w.all()); n < 7 || n > 12 {
			t.Errorf("%d handshakes in a minute, each may take 5 s", n)
		}
	})
}

func TestRedialBacksOff(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{}, memory.Config{}, nil)
		front := p.transports[0]
		p.refuse()
		before := front.Counters().DialErrors
		p.net.Cut(nil)
		time.Sleep(time.Minute)
		if n := front.Counters().DialErrors - before; n < 60 || n > 160 { // of two endpoints each time
			t.Errorf("%d dials in a minute", n)
		}
		p.allow()
		begun := time.Now()
		awaitUp(t, p.front, workerID, guard)
		took(t, "back", begun, 0, backoffMax)
	})
}

// However many endpoints a node has, a lane dials no more than 20 of them in any second.
func TestDialsASecond(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		d := &dialTimes{Transport: memory.NewNetwork(memory.Config{}).Transport(frontID),
			at: make(map[transport.NodeID][]time.Time)}
		f := newFront(t, Config{}, d)
		var many []string
		for i := range 50 {
			many = append(many, fmt.Sprintf("gone:%d", i+1))
		}
		add(t, f, at(workerID, many...))
		time.Sleep(30 * time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		all := d.at[workerID]
		for i := maxPerSecond; i < len(all); i++ {
			if all[i].Sub(all[i-maxPerSecond]) < time.Second {
				t.Fatalf("dial %d came %v after the 20th before it", i, all[i].Sub(all[i-maxPerSecond]))
			}
		}
		if len(all) < 300 {
			t.Errorf("%d dials", len(all))
		}
	})
}

func TestDialOnDemand(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{OnDemand: true}, memory.Config{}, nil)
		time.Sleep(time.Minute)
		if n := p.transports[0].Counters().Dials; n != 0 {
			t.Fatalf("%d dials before anybody asked", n)
		}
		if _, err := p.Link(t.Context(), workerID); err != nil {
			t.Fatal(err)
		}
	})
}

// A link that was dialled on demand goes when nobody has used it for ten minutes, and comes back with the next stream.
func TestIdleLinkIsClosed(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, Config{OnDemand: true, Lanes: 2}, memory.Config{}, nil)
		dials := func() uint64 { return p.transports[0].Counters().Dials }
		use := func() {
			t.Helper()
			if _, err := p.Link(t.Context(), workerID); err != nil {
				t.Fatal(err)
			}
		}
		use()
		p.open.Store(1)
		time.Sleep(30 * time.Minute) // an open stream is a use, however quiet
		p.open.Store(0)
		time.Sleep(5 * time.Minute)
		use() // so is one that is over before anybody looks
		ended := time.Now()
		time.Sleep(onDemandIdle - time.Second)
		if st := p.state(workerID); !st.Up || st.Lanes != 2 || dials() != 2 {
			t.Fatalf("closed too early: %+v, %d dials", st, dials())
		}
		waitFor(t, "the end of the link", func() bool { return p.Stats().Links == 0 })
		took(t, "closed", ended, onDemandIdle-tickEvery, onDemandIdle+time.Second)
		if st := p.state(workerID); st.Up || st.Err != nil {
			t.Errorf("state %+v", st)
		}
		time.Sleep(time.Hour)
		if n := dials(); n != 2 {
			t.Fatalf("%d dials though nobody asked", n)
		}
		for _, c := range p.w.all() {
			if _, away := c.ended(); len(away) != 1 || away[0] != wire.AwayClosing {
				t.Errorf("the worker was told %v", away)
			}
		}
		use()
		if n := dials(); n < 3 {
			t.Errorf("%d dials", n)
		}
	})
	inFakeTime(t, "an eager one stays", func(t *testing.T) {
		p := newPair(t, Config{}, memory.Config{}, nil)
		time.Sleep(3 * onDemandIdle)
		if n := p.transports[0].Counters().Dials; n != 1 || !p.state(workerID).Up {
			t.Errorf("%d dials, %+v", n, p.state(workerID))
		}
	})
	inFakeTime(t, "a stream that comes just then", func(t *testing.T) {
		p := newPair(t, Config{OnDemand: true}, memory.Config{}, nil)
		for range 4 {
			time.Sleep(onDemandIdle - time.Millisecond)
			var wg sync.WaitGroup
			for i := range 200 { // before, while and after the link is closed
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					k, err := p.Link(t.Context(), workerID)
					if err != nil {
						t.Errorf("a link at %d ms: %v", i, err)
						return
					}
					time.Sleep(time.Second)
					if k.end() != nil {
						t.Errorf("the link of %d ms has gone under its stream", i)
					}
				})
			}
			wg.Wait()
		}
	})
	inFakeTime(t, "lost, and nobody asks", func(t *testing.T) {
		p := newPair(t, Config{OnDemand: true}, memory.Config{}, nil)
		if _, err := p.Link(t.Context(), workerID); err != nil {
			t.Fatal(err)
		}
		p.refuse()
		p.net.Cut(nil)
		waitFor(t, "the end of the link", func() bool { return p.Stats().Links == 0 })
		before := p.transports[0].Counters()
		time.Sleep(time.Hour)
		if after := p.transports[0].Counters(); after != before {
			t.Errorf("dialled though nobody asked: %+v, %+v", before, after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := p.Link(ctx, workerID); !errors.Is(err, ErrNoLink) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// dialTimes is a transport that notes when each node was dialled, and refuses.
type dialTimes struct {
	transport.Transport
	mu sync.Mutex
	at map[transport.NodeID][]time.Time
}

func (d *dialTimes) Dial(_ context.Context, req transport.DialRequest) (transport.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at[req.Peer] = append(d.at[req.Peer], time.Now())
	return nil, syscall.ECONNREFUSED
}

// Redials get rarer, up to one in two seconds, and those of many nodes that fell silent together spread out.
func TestRedialsSpread(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		const nodes = 256
		d := &dialTimes{Transport: memory.NewNetwork(memory.Config{}).Transport(frontID),
			at: make(map[transport.NodeID][]time.Time)}
		f := newFront(t, Config{}, d)
		begun := time.Now()
		for i := range nodes {
			add(t, f, at(transport.NodeID{1, byte(i)}, "gone:1"))
		}
		time.Sleep(time.Minute)
		f.close("")
		perSecond := make([]float64, 60*10) // tenths of a second
		for id, at := range d.at {
			for i := range at {
				if n := int(at[i].Sub(begun) / (100 * time.Millisecond)); n < len(perSecond) {
					perSecond[n]++
				}
				if i == 0 {
					continue
				}
				most := min(backoffFirst<<min(i-1, 10), backoffMax)
				if gap := at[i].Sub(at[i-1]); gap < most/2 || gap > most+10*time.Millisecond {
					t.Fatalf("node %s: dial %d came %v after the one before, expected %v to %v", id, i, gap, most/2,
						most)
				}
			}
		}
		// From ten seconds on the nodes have nothing in common any more: each tenth of a second holds about
		// nodes/15 dials, as if they were drawn at random.
		mean, peak := 0.0, 0.0
		for _, n := range perSecond[100:] {
			mean += n / float64(len(perSecond)-100)
			peak = max(peak, n)
		}
		if want := nodes / 15.0; math.Abs(mean-want) > want/10 || peak > mean+6*math.Sqrt(mean) {
			t.Errorf("dials in a tenth of a second: mean %.1f, expected %.1f; peak %.0f", mean, want, peak)
		}
	})
}

// crowd is a transport that counts the dials that are under way; they take as long as the test says.
type crowd struct {
	transport.Transport
	takes func(transport.NodeID) time.Duration
	mu    sync.Mutex
	now   int
	most  int
}

func (c *crowd) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
	}()
	select {
	case <-time.After(c.takes(req.Peer)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.Transport.Dial(ctx, req)
}

// A frontend that learns of many nodes at once dials them in turns, and hosts that do not answer hold up nobody for
// long.
func TestDialsTakeTurns(t *testing.T) {
	const nodes, silent = 512, 128
	node := func(i int) transport.NodeID { return transport.NodeID{2, byte(i >> 8), byte(i)} }
	inFakeTime(t, "", func(t *testing.T) {
		net := memory.NewNetwork(memory.Config{Proves: true})
		c := &crowd{Transport: net.Transport(frontID), takes: func(id transport.NodeID) time.Duration {
			if int(id[1])<<8|int(id[2]) < silent {
				return time.Hour
			}
			return 20 * time.Millisecond
		}}
		f := newFront(t, Config{}, c)
		begun := time.Now()
		for i := range nodes {
			address := fmt.Sprintf("worker:%d", i+1)
			serving(t, net, node(i), address)
			add(t, f, at(node(i), address))
		}
		waitFor(t, "all that answer", func() bool { return f.Stats().Links == nodes-silent })
		took(t, "all that answer", begun, 0, 3*time.Second)
		if c.most > maxDials+silent {
			t.Errorf("%d dials at once", c.most)
		}
	})
}

// dials is a transport that remembers what was dialled.
type dials struct {
	transport.Transport
	mu   sync.Mutex
	reqs []transport.DialRequest
}

// Dial implements transport.Transport.
func (d *dials) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	d.mu.Lock()
	d.reqs = append(d.reqs, req)
	d.mu.Unlock()
	return d.Transport.Dial(ctx, req)
}

// first is what each lane dialled first.
func (d *dials) first() map[int]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[int]string)
	for _, r := range d.reqs {
		if out[r.Lane] == "" {
			out[r.Lane] = r.Address
		}
	}
	return out
}

// Lane k of a frontend dials endpoint (offset + k) mod n; offset comes from its NodeID, so that frontends begin at
// different ones. A worker of an older version lists one endpoint: all lanes go there.
func TestLanesAreSpreadOverEndpoints(t *testing.T) {
	const lanes = 8
	for _, endpoints := range []int{1, 3, 4} {
		for _, id := range []transport.NodeID{{0, 0, 1}, {0, 1, 1}, {0x12, 0x34, 1}, {0xff, 0xff, 1}} {
			inFakeTime(t, fmt.Sprintf("%d endpoints, node %x", endpoints, id[:2]), func(t *testing.T) {
				n := memory.NewNetwork(memory.Config{})
				d := &dials{Transport: n.Transport(id)}
				list := newWorker(t, workerID).listen(n.Transport(workerID), "worker:0", endpoints)
				f := newFront(t, Config{ID: id, Lanes: lanes}, d)
				add(t, f, at(workerID, list...))
				waitFor(t, "all lanes", func() bool { return f.state(workerID).Lanes == lanes })
				offset := int(id[0])<<8 | int(id[1])
				for k, address := range d.first() {
					if want := list[(offset+k)%endpoints]; address != want {
						t.Errorf("lane %d dialled %s, want %s", k, address, want)
					}
				}
			})
		}
	}
}

// tcpPair is a frontend and a worker over sockets.
func tcpPair(t *testing.T, cfg Config, script func(*workerConn) bool) (*front, *worker) {
	t.Helper()
	node := func() (transport.Transport, transport.NodeID) {
		id, err := transport.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		tr, err := tcp.New(tcp.Config{Identity: id})
		if err != nil {
			t.Fatal(err)
		}
		return tr, id.ID
	}
	work, workID := node()
	w := newWorker(t, workID)
	w.script = script
	addresses := w.listen(work, "127.0.0.1:0", 2)
	tr, id := node()
	cfg.ID = id
	f := newFront(t, cfg, tr)
	add(t, f, Peer{ID: workID, Planes: []PeerPlane{{transport.PlaneTCP, addresses}}})
	return f, w
}

// The strings outlive connections of sockets too.
func TestStringsOutliveSockets(t *testing.T) {
	f, w := tcpPair(t, Config{Lanes: 2}, nil)
	awaitUp(t, f, w.id, guard)
	k := f.last()
	waitFor(t, "both lanes", func() bool { return k.count("up") == 2 })
	for i := range 10 {
		for lane := range 2 {
			for n := range 50 {
				k.put(lane, uint64(n))
				w.put(k.link.Number(), lane, record(1000))
			}
		}
		before := len(w.all())
		for _, c := range w.all() {
			_ = c.conn.Close()
		}
		waitFor(t, "new connections", func() bool { return len(w.all()) == before+2 })
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
	for lane := range 2 {
		k.equal(w, lane)
	}
	if k.count("lane lost")+k.count("lost") != 0 {
		t.Errorf("events: %s", k)
	}
}

// A worker behind sockets that closes each connection after its HELLO is dialled rarely.
func TestHostileWorkerOverSockets(t *testing.T) {
	for name, rest := range map[string][]byte{"closes": nil, "garbage": []byte("garbage, and more of it")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			_, w := tcpPair(t, Config{}, func(c *workerConn) bool {
				own := c.w.answer(c.hello)
				own.OwnSecret = [16]byte{1}
				_, _ = c.conn.Write(append(wire.AppendHello(nil, own), rest...))
				time.Sleep(time.Millisecond)
				return false
			})
			waitFor(t, "six HELLOs", func() bool { return len(w.all()) >= 6 })
			// five pauses, each of at least half of what it doubles to
			if d := w.all()[5].at.Sub(begun); d < 31*backoffFirst/2 {
				t.Errorf("six HELLOs within %v", d)
			}
		})
	}
}
