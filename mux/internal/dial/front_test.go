package dial

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

const (
	planeFast = "fast"
	planeSafe = "safe"
)

const tickEvery = 50 * time.Millisecond

var ownPings = wire.Pings{Idle: 5 * time.Second, IdleSilence: 15 * time.Second, Active: time.Second,
	ActiveSilence: 3 * time.Second}

// front is the frontend's side: Peers, their ticker, and streams that only take notes.
type front struct {
	*Peers
	t     testing.TB
	epoch time.Time
	wg    sync.WaitGroup
	done  chan struct{}
	open  atomic.Int64 // what Streams.Open says
	stall atomic.Int64 // nanoseconds that the ticker stands still before its next tick
	stuck atomic.Pointer[chan struct{}]
	pipes pipe.Stats

	mu    sync.Mutex
	links []*testLink
}

// testLink is dial.Streams.
type testLink struct {
	f     *front
	link  *Link
	lanes []*testLane

	mu     sync.Mutex
	events []string
	at     map[string]time.Time
	over   bool
}

// testLane is pipe.Handler, and what was put into the lane's string.
type testLane struct {
	f    *front
	got  []byte
	sent []byte
}

func newFront(t testing.TB, cfg Config, transports ...transport.Transport) *front {
	t.Helper()
	f := &front{t: t, epoch: time.Now(), done: make(chan struct{})}
	cfg.ID = orDefault(cfg.ID, frontID)
	cfg.Lanes = orDefault(cfg.Lanes, 1)
	cfg.Pings = orDefault(cfg.Pings, ownPings)
	if cfg.Resume = orDefault(cfg.Resume, 10*time.Second); cfg.Resume < 0 {
		cfg.Resume = 0
	}
	cfg.Log = 1 << 20
	cfg.Now = func() int64 { return int64(time.Since(f.epoch)) + 1 }
	cfg.Pipe = pipe.Config{FromWorker: true, LogLimit: cfg.Log, Now: cfg.Now, Budget: pipe.NewBudget(1 << 30),
		Stats: &f.pipes}
	f.Peers = New(cfg, f, transports...)
	f.wg.Go(f.tick)
	t.Cleanup(func() {
		f.close("the test ends")
		for _, tr := range transports {
			_ = tr.Close()
		}
		for _, k := range f.all() {
			k.mu.Lock()
			if !k.over {
				t.Errorf("link %d was never said to be lost: %v", k.link.Number(), k.events)
			}
			k.mu.Unlock()
		}
	})
	return f
}

func orDefault[T comparable](v, def T) T {
	if v == *new(T) {
		return def
	}
	return v
}

func (f *front) close(text string) {
	f.Close(text)
	select {
	case <-f.done:
	default:
		close(f.done)
	}
	f.wg.Wait()
}

func (f *front) tick() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	last := f.cfg.Now()
	for {
		select {
		case <-f.done:
			return
		case <-t.C:
		}
		time.Sleep(time.Duration(f.stall.Swap(0)))
		now := f.cfg.Now()
		late := time.Duration(now-last) - tickEvery
		if late < time.Second {
			late = 0
		}
		f.Tick(now, last, late)
		last = now
	}
}

// Begin implements Owner.
func (f *front) Begin(k *Link) Streams {
	s := &testLink{f: f, link: k, at: make(map[string]time.Time)}
	for range k.Lanes() {
		s.lanes = append(s.lanes, &testLane{f: f})
	}
	f.mu.Lock()
	f.links = append(f.links, s)
	f.mu.Unlock()
	return s
}

func (f *front) all() []*testLink {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.links)
}

// last is the link that began last.
func (f *front) last() *testLink {
	all := f.all()
	return all[len(all)-1]
}

func (k *testLink) note(event string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		k.f.t.Errorf("%s after the link was lost", event)
	}
	k.events = append(k.events, event)
	k.at[event] = time.Now()
	k.over = strings.HasPrefix(event, "lost")
}

func (k *testLink) Lane(i int) pipe.Handler    { return k.lanes[i] }
func (k *testLink) LaneUp(i int)               { k.note(fmt.Sprintf("up %d", i)) }
func (k *testLink) LaneLost(i int, why string) { k.note(fmt.Sprintf("lane lost %d", i)) }
func (k *testLink) Lost(why string, protocol bool) {
	k.note(fmt.Sprintf("lost %t %s", protocol, why))
}
func (k *testLink) Open() int { return int(k.f.open.Load()) }

// count is how often an event whose text begins so came.
func (k *testLink) count(event string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.events {
		if strings.HasPrefix(e, event) {
			n++
		}
	}
	return n
}

func (k *testLink) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.events, "; ")
}

func (l *testLane) Record(h wire.Header, body []byte) error {
	l.got = append(wire.AppendHeader(l.got, h.Kind, h.Length, h.Slot), body...)
	return nil
}

func (l *testLane) BatchDone() {
	if c := l.f.stuck.Load(); c != nil {
		<-*c
	}
}
func (l *testLane) Sealed(wire.Slot)     {}
func (l *testLane) Skips(wire.Slot) bool { return false }

// put appends a STOP to the lane's string.
func (k *testLink) put(lane int, number uint64) {
	b := wire.AppendStop(nil, wire.MakeSlot(1, 1), number)
	p := k.link.Lanes()[lane].Pipe()
	p.Lock()
	p.Append(pipe.Bulk, wire.Stop, wire.MakeSlot(1, 1), b[wire.HeaderSize:])
	p.FlushLocked(pipe.ByFlush)
	k.lanes[lane].sent = append(k.lanes[lane].sent, b...)
}

// equal checks both strings of a lane at both ends, when all is still.
func (k *testLink) equal(w *worker, lane int) {
	k.f.t.Helper()
	waitFor(k.f.t, "equal strings", func() bool {
		return bytes.Equal(w.got(k.link.Number(), lane), k.lanes[lane].sent)
	})
	w.mu.Lock()
	sent := bytes.Clone(w.links[k.link.Number()].lanes[lane].sent)
	w.mu.Unlock()
	waitFor(k.f.t, "all that the worker sent", func() bool {
		return k.link.Lanes()[lane].Pipe().Received() == uint64(len(sent))
	})
	k.link.Lanes()[lane].Pipe().Lock() // so that got may be read
	defer k.link.Lanes()[lane].Pipe().Unlock()
	if !bytes.Equal(k.lanes[lane].got, sent) {
		k.f.t.Errorf("lane %d: %d bytes came, %d were sent, and they differ", lane, len(k.lanes[lane].got), len(sent))
	}
}

// lanesOn counts the lanes that are up on a plane.
func (f *front) lanesOn(plane string) (n int) {
	for _, k := range f.Links() {
		for _, l := range k.Lanes() {
			if l.Up() && l.Plane() == plane {
				n++
			}
		}
	}
	return n
}

func (f *front) state(id transport.NodeID) State {
	st, _ := f.State(id)
	return st
}

func add(t testing.TB, f *front, p Peer, alternatives ...Peer) {
	t.Helper()
	p.Alternatives = alternatives
	if err := f.Add(p); err != nil {
		t.Fatal(err)
	}
}

func awaitUp(t testing.TB, f *front, id transport.NodeID, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := f.Await(ctx, id); err != nil {
		t.Fatal(err)
	}
}

// waitFor waits for something that must happen soon.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(guard); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// took checks a span of fake time.
func took(t testing.TB, what string, since time.Time, least, most time.Duration) {
	t.Helper()
	if d := time.Since(since); d < least || d > most {
		t.Errorf("%s: took %v, expected %v to %v", what, d, least, most)
	}
}

// inFakeTime is a test in a bubble.
func inFakeTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	if name == "" {
		synctest.Test(t, test)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// at describes a node by its endpoints on one plane.
func at(id transport.NodeID, addresses ...string) Peer {
	return Peer{ID: id, Planes: []PeerPlane{{Plane: transport.PlaneMemory, Endpoints: addresses}}}
}

// pair is a frontend and a worker on a memory network; all lanes are up.
type pair struct {
	*front
	w    *worker
	net  *memory.Network
	addr []string
	*testLink
}

func newPair(t testing.TB, cfg Config, mem memory.Config, script func(*workerConn) bool) *pair {
	t.Helper()
	p := &pair{net: memory.NewNetwork(mem), w: newWorker(t, workerID)}
	p.w.script = script
	p.addr = p.w.listen(p.net.Transport(workerID), "worker:0", 2)
	p.front = newFront(t, cfg, p.net.Transport(orDefault(cfg.ID, frontID)))
	add(t, p.front, at(workerID, p.addr...))
	if script == nil && !cfg.OnDemand {
		p.up(t)
	}
	return p
}

// up waits until all lanes are.
func (p *pair) up(t testing.TB) {
	t.Helper()
	awaitUp(t, p.front, workerID, guard)
	p.testLink = p.front.last()
	waitFor(t, "all lanes", func() bool { return p.link.up() == len(p.link.Lanes()) })
}

func (p *pair) refuse() {
	for _, a := range p.addr {
		p.net.Refuse(a, nil)
	}
}

func (p *pair) silence() {
	for _, a := range p.addr {
		p.net.Silence(a)
	}
}

func (p *pair) allow() {
	for _, a := range p.addr {
		p.net.Allow(a)
	}
}
