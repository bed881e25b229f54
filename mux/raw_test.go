package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// guard is how long a test waits for what must come at once.
const guard = 20 * time.Second

var (
	frontID  = transport.NodeID{0xf}
	workerID = transport.NodeID{0x3}
)

// rawRecord is a record as a raw lane has read it.
type rawRecord struct {
	wire.Header
	body []byte
}

// rawLane is one end of a lane that does what the test says; the other end is a real WorkerNode or FrontendNode.
type rawLane struct {
	conn transport.Conn
	peer wire.HelloBody // the other end's HELLO

	mu      sync.Mutex
	recs    []rawRecord
	bytes   int // of all records read
	err     error
	changed chan struct{}
	done    chan struct{}
}

// received is how many bytes of the other end's string this one has read.
func (l *rawLane) received() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recs {
		if r.Kind.Counted() {
			n += uint64(wire.HeaderSize + r.Length)
		}
	}
	return n
}

// of is the records of a slot, or all of the lane's string if it is 0.
func (l *rawLane) of(s wire.Slot) (recs []rawRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recs {
		if r.Kind.Counted() && (s == 0 || r.Slot == s) {
			recs = append(recs, r)
		}
	}
	return recs
}

// talk keeps a raw lane's other end from hearing silence until the lane ends. The test must not write meanwhile.
func (l *rawLane) talk(kind wire.Kind) {
	go func() {
		for {
			select {
			case <-l.done:
				return
			case <-time.After(200 * time.Millisecond):
				if _, err := l.conn.Write(wire.AppendPing(nil, kind, 0, 0)); err != nil {
					return
				}
			}
		}
	}()
}

// pump reads all that comes, so that the other end never waits for this one.
func (l *rawLane) pump() {
	l.changed, l.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(l.done)
		for {
			r, err := l.read()
			l.mu.Lock()
			if err != nil {
				l.err = err
			} else {
				l.recs = append(l.recs, r)
				l.bytes += wire.HeaderSize + len(r.body)
			}
			close(l.changed)
			l.changed = make(chan struct{})
			l.mu.Unlock()
			if err != nil {
				return
			}
			if r.Kind == wire.GoAway {
				if code, _, err := wire.ParseGoAway(r.body); err == nil && code != wire.AwayDraining {
					_ = l.conn.Close() // as an honest peer does
				}
			}
		}
	}()
}

// read takes one record.
func (l *rawLane) read() (r rawRecord, err error) {
	var head [wire.HeaderSize]byte
	if _, err = io.ReadFull(l.conn, head[:]); err != nil {
		return r, err
	}
	r.Header = wire.ParseHeader(head[:])
	r.body = make([]byte, r.Length)
	_, err = io.ReadFull(l.conn, r.body)
	return r, err
}

// await waits for a record among all that have come, or for the lane's end (then ok is false).
func (l *rawLane) await(t testing.TB, what string, match func(rawRecord) bool) (r rawRecord, ok bool) {
	t.Helper()
	timeout := time.After(guard)
	for seen := 0; ; {
		l.mu.Lock()
		for ; seen < len(l.recs); seen++ {
			if match(l.recs[seen]) {
				r = l.recs[seen]
				l.mu.Unlock()
				return r, true
			}
		}
		err, changed := l.err, l.changed
		l.mu.Unlock()
		if err != nil {
			return r, false
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

func (l *rawLane) count(k wire.Kind) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.recs {
		if r.Kind == k {
			n++
		}
	}
	return n
}

// acknowledge tells the other end how much of its string has come.
func (l *rawLane) acknowledge(t testing.TB) {
	t.Helper()
	received := uint64(0)
	l.mu.Lock()
	for _, r := range l.recs {
		if r.Kind.Counted() {
			received += uint64(wire.HeaderSize + len(r.body))
		}
	}
	l.mu.Unlock()
	l.send(t, wire.AppendAck(nil, received))
}

func (l *rawLane) send(t testing.TB, b ...[]byte) {
	t.Helper()
	for _, b := range b {
		if _, err := l.conn.Write(b); err != nil {
			t.Fatalf("write to the lane: %v", err)
		}
	}
}

var pings uint64 = 1 << 40

// alive sends a PING and waits for its PONG: what was sent before has been handled. False: the lane has ended.
func (l *rawLane) alive(t testing.TB) bool {
	t.Helper()
	pings++
	v := pings
	if _, err := l.conn.Write(wire.AppendPing(nil, wire.Ping, v, 0)); err != nil {
		return false
	}
	_, ok := l.await(t, "PONG", func(r rawRecord) bool {
		if r.Kind != wire.Pong {
			return false
		}
		got, _, err := wire.ParsePing(r.Kind, r.body)
		return err == nil && got == v
	})
	return ok
}

// dead waits for the end of the lane.
func (l *rawLane) dead(t testing.TB) {
	t.Helper()
	select {
	case <-l.done:
	case <-time.After(guard):
		t.Fatal("the lane is still up")
	}
}

// rawFront is one link of a frontend made of raw lanes in front of a real WorkerNode.
type rawFront struct {
	send   *WorkerNode
	net    *memory.Network // nil on planes with sockets
	front  transport.Transport
	id     transport.NodeID
	link   uint64
	addr   string
	secret [16]byte
	worker [16]byte // the WorkerNode's secret
	lanes  uint16
	serial uint64
	number uint64
}

// testPings are the rules of liveness of raw lanes.
var testPings = wire.Pings{Idle: DefaultKeepAlive, IdleSilence: DefaultIdle, Active: DefaultActivePing,
	ActiveSilence: 3 * DefaultActivePing}

func newRawFront(t testing.TB, cfg Config, mem memory.Config) *rawFront {
	t.Helper()
	n := memory.NewNetwork(mem)
	ids := [2]transport.NodeID{frontID, workerID}
	return connectRawFront(t, cfg, n, n.Transport(frontID), n.Transport(workerID), "worker:0", ids)
}

// newRawFrontOver is newRawFront over a plane with sockets.
func newRawFrontOver(t testing.TB, plane string, cfg Config) *rawFront {
	t.Helper()
	front, frontID := newNode(t, plane)
	work, workerID := newNode(t, plane)
	return connectRawFront(t, cfg, nil, front, work, "127.0.0.1:0", [2]transport.NodeID{frontID, workerID})
}

func connectRawFront(t testing.TB, cfg Config, n *memory.Network, front, work transport.Transport, bind string,
	ids [2]transport.NodeID) *rawFront {
	t.Helper()
	cfg.ID = ids[1]
	ln, err := work.Listen(t.Context(), bind, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := &rawFront{net: n, front: front, id: ids[0], link: 1, addr: ln.Endpoints()[0].String(), secret: [16]byte{1},
		lanes: 1}
	if f.send, err = NewWorkerNode(cfg); err != nil {
		t.Fatal(err)
	}
	if err := f.send.Serve(ln); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeInTime(t, "WorkerNode", f.send)
		checkEmpty(t, "worker", f.send.Stats())
		_ = front.Close()
		_ = work.Close()
	})
	return f
}

// another is one more link of the same frontend.
func (f *rawFront) another() *rawFront {
	next := *f
	next.link++
	next.secret[1]++
	next.worker, next.serial, next.number = [16]byte{}, 0, 0
	return &next
}

// hello is the HELLO of the next connection of lane 0.
func (f *rawFront) hello() wire.HelloBody {
	f.serial++
	return wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: f.id, Link: f.link, Lanes: f.lanes,
		Serial: f.serial,
		Log:    DefaultLog, Resume: DefaultResume, Pings: testPings, OwnSecret: f.secret, PeerSecret: f.worker}
}

// dial opens a connection and says nothing.
func (f *rawFront) dial(t testing.TB) *rawLane {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	conn, err := f.front.Dial(ctx, transport.DialRequest{Address: f.addr, Peer: f.send.cfg.ID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &rawLane{conn: conn}
}

// greet does the handshake of a connection; an error is a refusal.
func (f *rawFront) greet(t testing.TB, l *rawLane, h wire.HelloBody) error {
	t.Helper()
	l.send(t, wire.AppendHello(nil, &h))
	peer, err := pipe.ReadHello(l.conn)
	if err != nil {
		return err
	}
	l.peer = *peer
	return nil
}

// lane brings lane 0 up, or takes it over; received is what the one before had, as far as the test cares.
func (f *rawFront) lane(t testing.TB) *rawLane { return f.laneOf(t, 0, 0) }

// laneOf is lane for any lane and any received.
func (f *rawFront) laneOf(t testing.TB, index uint16, received uint64) *rawLane {
	t.Helper()
	l := f.dial(t)
	h := f.hello()
	h.Lane, h.Received = index, received
	if err := f.greet(t, l, h); err != nil {
		t.Fatal(err)
	}
	f.worker = l.peer.OwnSecret
	l.pump()
	t.Cleanup(func() { _ = l.conn.Close(); <-l.done })
	return l
}

// terms mints terms on a lane by hand.
func (f *rawFront) terms(l *rawLane, index uint32) wire.Terms {
	f.number++
	return wire.Terms{Frontend: f.id, Worker: f.send.cfg.ID, Link: l.peer.Link,
		Slot: wire.MakeSlot(index, uint8(f.number)), Number: f.number, Lane: l.peer.Lane, Window: 64 << 10}
}

// mint encodes terms with the link's key, which it sets.
func (f *rawFront) mint(terms *wire.Terms) []byte {
	return wire.AppendTerms(nil, terms, wire.NewKey(f.secret, f.worker))
}

// complete is the END of a stream that has sent so much.
func complete(number, records, bytes uint64) wire.EndBody {
	return wire.EndBody{Number: number, Type: EndComplete, Records: records, Bytes: bytes}
}

func (f *rawFront) attach(t testing.TB, terms wire.Terms) *OutStream {
	t.Helper()
	s, err := f.send.Attach(f.mint(&terms))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rawWorker is a worker made of raw lanes behind a real FrontendNode.
type rawWorker struct {
	recv  *FrontendNode
	net   *memory.Network // nil on planes with sockets
	id    transport.NodeID
	lanes chan *rawLane // those that are up, in the order in which they came
	wg    sync.WaitGroup
}

// newRawWorker starts a FrontendNode and a listener that greets every lane; hello, if not nil, may change the answer or
// return nil to write nothing.
func newRawWorker(t testing.TB, cfg Config, mem memory.Config, hello func(*wire.HelloBody) []byte) *rawWorker {
	t.Helper()
	n := memory.NewNetwork(mem)
	ids := [2]transport.NodeID{frontID, workerID}
	return connectRawWorker(t, cfg, n, n.Transport(frontID), n.Transport(workerID), "worker:0", ids, hello)
}

// newRawWorkerOver is newRawWorker over a plane with sockets.
func newRawWorkerOver(t testing.TB, plane string, cfg Config, hello func(*wire.HelloBody) []byte) *rawWorker {
	t.Helper()
	front, frontID := newNode(t, plane)
	work, workerID := newNode(t, plane)
	ids := [2]transport.NodeID{frontID, workerID}
	return connectRawWorker(t, cfg, nil, front, work, "127.0.0.1:0", ids, hello)
}

func connectRawWorker(t testing.TB, cfg Config, n *memory.Network, front, work transport.Transport, bind string,
	ids [2]transport.NodeID, hello func(*wire.HelloBody) []byte) *rawWorker {
	t.Helper()
	cfg.ID = ids[0]
	ln, err := work.Listen(t.Context(), bind, 1)
	if err != nil {
		t.Fatal(err)
	}
	w := &rawWorker{net: n, id: ids[1], lanes: make(chan *rawLane, 1024)}
	w.wg.Go(func() { w.accept(t, ln, hello) })
	if w.recv, err = NewFrontendNode(cfg, front); err != nil {
		t.Fatal(err)
	}
	peer := Peer{ID: w.id, Planes: []PeerPlane{{Plane: front.Plane(), Endpoints: []string{ln.Endpoints()[0].String()}}}}
	if err := w.recv.AddPeer(peer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeInTime(t, "FrontendNode", w.recv)
		_ = ln.Close()
		_ = front.Close()
		_ = work.Close()
		w.wg.Wait()
	})
	return w
}

// answerTo is a worker's HELLO.
func answerTo(h *wire.HelloBody, id transport.NodeID) wire.HelloBody {
	return wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: id, Link: h.Link, Lane: h.Lane,
		Lanes:  h.Lanes,
		Serial: h.Serial, Log: DefaultLog, Resume: DefaultResume, Pings: testPings, MaxStreams: 1 << 16,
		OwnSecret:  [16]byte{2},
		PeerSecret: h.OwnSecret}
}

func (w *rawWorker) accept(t testing.TB, ln transport.Listener, hello func(*wire.HelloBody) []byte) {
	for {
		conn, err := ln.Accept(context.Background())
		if err != nil {
			return
		}
		w.wg.Go(func() {
			defer conn.Close()
			h, err := pipe.ReadHello(conn)
			if err != nil {
				return
			}
			own := answerTo(h, w.id)
			answer := wire.AppendHello(nil, &own)
			if hello != nil {
				answer = hello(&own)
			}
			if _, err := conn.Write(answer); err != nil {
				return
			}
			l := &rawLane{conn: conn, peer: *h}
			l.pump()
			w.lanes <- l
			<-l.done
		})
	}
}

// lane waits for the next lane that is up.
func (w *rawWorker) lane(t testing.TB) *rawLane {
	t.Helper()
	select {
	case l := <-w.lanes:
		waitFor(t, "the lane at the frontend", func() bool {
			for _, st := range w.recv.Stats().Lanes {
				if st.Lane == int(l.peer.Lane) && st.Up {
					return true
				}
			}
			return false
		})
		return l
	case <-time.After(guard):
		t.Fatal("no lane came")
		return nil
	}
}

func (w *rawWorker) mint(t testing.TB, o MintOptions) (*InStream, wire.Terms) {
	t.Helper()
	in, err := w.recv.Mint(t.Context(), w.id, o)
	if err != nil {
		t.Fatal(err)
	}
	terms, err := wire.ParseTerms(in.Terms())
	if err != nil {
		t.Fatal(err)
	}
	return in, terms
}

// closeInTime closes a WorkerNode or FrontendNode and fails when that hangs.
func closeInTime(t testing.TB, what string, c interface{ Close() error }) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s.Close: %v", what, err)
		}
	case <-time.After(guard):
		t.Fatalf("%s.Close hangs", what)
	}
}

// checkEmpty checks that a closed side holds nothing of any stream, and that each had exactly one end.
func checkEmpty(t testing.TB, what string, st Stats) {
	t.Helper()
	var ended uint64
	for _, n := range st.StreamsEnded {
		ended += n
	}
	if ended != st.StreamsOpened {
		t.Errorf("%s: %d streams were opened and %d ended: %v", what, st.StreamsOpened, ended, st.StreamsEnded)
	}
	if st.OpenStreams != 0 || st.LogBytes != 0 || st.ClosingSlots != 0 || st.CommittedBytes != 0 {
		t.Errorf("%s: %d streams, %d bytes of logs, %d closing slots, %d committed bytes are left",
			what, st.OpenStreams, st.LogBytes, st.ClosingSlots, st.CommittedBytes)
	}
}

// data is a DATA or DATA_MORE record.
func data(k wire.Kind, s wire.Slot, body []byte) []byte {
	return append(wire.AppendHeader(nil, k, len(body), s), body...)
}

// header is a record whose length field lies: no body follows.
func header(k wire.Kind, length int, s wire.Slot) []byte { return wire.AppendHeader(nil, k, length, s) }

func end(s wire.Slot, e wire.EndBody) []byte { return wire.AppendEnd(nil, s, &e) }

// ofKind matches records of a kind.
func ofKind(k wire.Kind) func(rawRecord) bool {
	return func(r rawRecord) bool { return r.Kind == k }
}

// ofNumber matches STOPs and KILLs of a stream.
func ofNumber(k wire.Kind, number uint64) func(rawRecord) bool {
	return func(r rawRecord) bool {
		if r.Kind != k {
			return false
		}
		var n uint64
		var err error
		if k == wire.Kill {
			n, _, err = wire.ParseKill(r.Slot, r.body)
		} else {
			n, err = wire.ParseStop(r.Slot, r.body)
		}
		return err == nil && n == number
	}
}

// endOf matches the END of a stream.
func endOf(number uint64) func(rawRecord) bool {
	return func(r rawRecord) bool {
		if r.Kind != wire.End {
			return false
		}
		e, err := wire.ParseEnd(r.Slot, r.body)
		return err == nil && e.Number == number
	}
}

// endType checks the end of a worker's stream.
func endType(err error) (EndType, error) {
	var e *EndError
	if errors.As(err, &e) {
		return e.End.Type, nil
	}
	return 0, fmt.Errorf("expected an *EndError, got %v", err)
}
