package mux

import (
	"context"
	"errors"
	"math"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

func TestHelloTimeout(t *testing.T) {
	h := wire.HelloBody{Lowest: 1, Highest: 1, Node: frontID, Link: 1, Serial: 1, OwnSecret: [16]byte{1}}
	for name, b := range map[string][]byte{
		"nothing": nil, "half a header": wire.AppendHello(nil, &h)[:5], "half a HELLO": wire.AppendHello(nil, &h)[:50],
	} {
		inFakeTime(t, name, func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			begun := time.Now()
			var all []*rawLane
			for range maxHandshakes + 10 { // the last ones wait for a place
				l := f.dial(t)
				if len(b) > 0 {
					l.send(t, b)
				}
				l.pump()
				all = append(all, l)
			}
			if len(b) == 0 { // the oldest ones make room
				time.Sleep(silentGrace + 10*time.Millisecond)
				gone := 0
				for _, l := range all {
					select {
					case <-l.done:
						gone++
					default:
					}
				}
				if gone != 10 {
					t.Errorf("%d made room, expected 10", gone)
				}
				for _, l := range all {
					<-l.done
				}
				took(t, "all closed", begun, silentGrace+helloTimeout, silentGrace+helloTimeout+10*time.Millisecond)
				f.lane(t)
				return
			}
			<-all[0].done
			took(t, "closed", begun, helloTimeout, helloTimeout+time.Millisecond)
			for _, l := range all {
				<-l.done
			}
			took(t, "all closed", begun, 2*helloTimeout, 2*helloTimeout+time.Millisecond)
			f.lane(t) // and the worker is well
		})
	}
	inFakeTime(t, "a worker that says nothing", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, func(*wire.HelloBody) []byte { return nil })
		time.Sleep(time.Minute)
		st, _ := w.recv.State(workerID)
		if st.Up || st.Err == nil {
			t.Errorf("state %+v", st)
		}
		if n := len(w.lanes); n < 7 || n > 12 {
			t.Errorf("%d handshakes in a minute, each may take 5 s", n)
		}
	})
}

func TestRedialBacksOff(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		w.net.Refuse(l.conn.Info().Local.String(), nil)
		front := w.recv.transports[0]
		before := front.Counters().DialErrors
		w.net.Cut(nil)
		time.Sleep(time.Minute)
		if n := front.Counters().DialErrors - before; n < 30 || n > 80 {
			t.Errorf("%d dials in a minute", n)
		}
		w.net.Allow(l.conn.Info().Local.String())
		begun := time.Now()
		w.lane(t)
		took(t, "back", begun, 0, backoffMax)
	})
}

func TestDialOnDemand(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		w := newRawWorker(t, Config{OnDemand: true}, memory.Config{}, nil)
		time.Sleep(time.Minute)
		if n := w.recv.transports[0].Counters().Dials; n != 0 {
			t.Fatalf("%d dials before anybody asked", n)
		}
		in, err := w.recv.Mint(t.Context(), workerID, MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		w.lane(t)
	})
}

// A link that was dialled on demand goes when nobody has used it for ten minutes, and comes back with the next stream.
func TestIdleLinkIsClosed(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{OnDemand: true, Lanes: 2}})
		dials := func() uint64 { return p.recv.transports[0].Counters().Dials }
		in, out := p.open(t)
		time.Sleep(30 * time.Minute) // an open stream is a use, however quiet
		carry(t, in, out, 0)
		finish(t, in, out)
		p.settled(t)
		ended := time.Now()
		time.Sleep(5 * time.Minute)
		in, out = p.open(t) // so is one that is over before anybody looks
		finish(t, in, out)
		p.settled(t)
		ended = time.Now()
		time.Sleep(onDemandIdle - time.Second)
		if st := p.state(); !st.Up || st.Lanes != 2 || dials() != 2 {
			t.Fatalf("closed too early: %+v, %d dials", st, dials())
		}
		waitFor(t, "the end of the link", func() bool { return p.recv.Stats().Links == 0 })
		took(t, "closed", ended, onDemandIdle-tickEvery, onDemandIdle+time.Second)
		if st := p.state(); st.Up || st.Err != nil {
			t.Errorf("state %+v", st)
		}
		waitFor(t, "the end of the link at the worker", func() bool { return len(p.send.Stats().Lanes) == 0 })
		time.Sleep(time.Hour)
		if n := dials(); n != 2 {
			t.Fatalf("%d dials though nobody asked", n)
		}
		if n := p.send.Stats().Links; n != 0 {
			t.Errorf("the worker has %d links", n)
		}
		in, out = p.open(t)
		carry(t, in, out, 0)
		finish(t, in, out)
		if n := dials(); n < 3 {
			t.Errorf("%d dials", n)
		}
	})
	inFakeTime(t, "an eager one stays", func(t *testing.T) {
		p := newPair(t, pairConfig{})
		time.Sleep(3 * onDemandIdle)
		if n := p.recv.transports[0].Counters().Dials; n != 1 || !p.state().Up {
			t.Errorf("%d dials, %+v", n, p.state())
		}
	})
	inFakeTime(t, "a stream that comes just then", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{OnDemand: true}})
		for range 4 {
			time.Sleep(onDemandIdle - time.Millisecond)
			var wg sync.WaitGroup
			for i := range 200 { // before, while and after the link is closed
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					in, err := p.recv.Mint(t.Context(), p.id, MintOptions{})
					if err != nil {
						t.Errorf("mint at %d ms: %v", i, err)
						return
					}
					_ = in.Close()
				})
			}
			wg.Wait()
			p.settled(t)
		}
	})
	inFakeTime(t, "lost, and nobody asks", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{OnDemand: true}})
		for _, c := range p.net.Conns() {
			p.net.Refuse(c.Info().Remote.String(), syscall.ECONNREFUSED)
		}
		_ = p.send.Close()
		waitFor(t, "the end of the link", func() bool { return p.recv.Stats().Links == 0 })
		before := p.recv.transports[0].Counters()
		time.Sleep(time.Hour)
		if after := p.recv.transports[0].Counters(); after != before {
			t.Errorf("dialled though nobody asked: %+v, %+v", before, after)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := p.recv.Mint(ctx, p.id, MintOptions{}); !errors.Is(err, ErrNoLink) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("mint: %v", err)
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
		net := memory.NewNetwork(memory.Config{})
		d := &dialTimes{Transport: net.Transport(frontID), at: make(map[transport.NodeID][]time.Time)}
		defer d.Close()
		recv, err := NewReceiver(Config{ID: frontID}, d)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for i := range nodes {
			if err := recv.AddPeer(Peer{ID: transport.NodeID{1, byte(i)}, Planes: []PeerPlane{{Plane: transport.PlaneMemory, Endpoints: []string{"gone:1"}}}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		closeInTime(t, "Receiver", recv)
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
					t.Fatalf("node %s: dial %d came %v after the one before, expected %v to %v", id, i, gap, most/2, most)
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

// A frontend that learns of many nodes at once dials them in turns, and hosts that do not answer hold up nobody for long.
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
		defer c.Close()
		recv, err := NewReceiver(Config{ID: frontID}, c)
		if err != nil {
			t.Fatal(err)
		}
		defer closeInTime(t, "Receiver", recv)
		begun := time.Now()
		for i := range nodes {
			work := net.Transport(node(i))
			ln, err := work.Listen(t.Context(), "worker:0", 1)
			if err != nil {
				t.Fatal(err)
			}
			send, err := NewSender(Config{ID: node(i)})
			if err != nil {
				t.Fatal(err)
			}
			defer work.Close()
			defer send.Close()
			if err := send.Serve(ln); err != nil {
				t.Fatal(err)
			}
			if err := recv.AddPeer(Peer{ID: node(i), Planes: []PeerPlane{{Plane: transport.PlaneMemory, Endpoints: []string{ln.Endpoints()[0].String()}}}}); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "all that answer", func() bool { return recv.Stats().Links == nodes-silent })
		took(t, "all that answer", begun, 0, 3*time.Second)
		if c.most > maxDials+silent {
			t.Errorf("%d dials at once", c.most)
		}
	})
}
