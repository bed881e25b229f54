package mux

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// FuzzFailover runs streams over lanes whose connections the script cuts, closes, half-closes, stalls and releases, at
// either end and in either direction, and whose plane it takes away and gives back (a fallback, and the planned
// takeovers of the return), while it sends, takes, stops, kills and closes. The oracle of TestProperty counts what
// arrives: every record once and in order, one end a stream and side, the right one, and nothing left. Time is fake, so
// a script costs milliseconds whatever it waits for.
//
// The first three bytes are the set-up. Then each step is an operation (its low four bits; the high bit: the next step
// does not wait until this one has done all it does) and its arguments.
func FuzzFailover(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) { runFailover(t, &script{b}) })
	})
}

// failover is one run of a script.
type failover struct {
	*script
	t       *testing.T
	p       *pair
	nets    []*memory.Network // the planes, the preferred one first
	streams []*failStream
	slept   time.Duration // since all lanes were certainly up
}

// failStream is a stream, the two ends' use of it, and its oracle.
type failStream struct {
	propertyStream
	out      *OutStream // nil until the request has arrived
	attached bool
	sending  chan struct{} // closed when a record in fragments has been sent; nil: none was
	consumer byte
	done     chan struct{} // closed when the consumer has its end
	close    func()        // closes done; a sink and NextBatch may both be told of a Kill
	over     bool          // done is closed; of those who are not a goroutine of their own
	stopped  bool          // the consumer has asked for it
	closed   bool          // by the consumer: a sink may never be told of the end
}

// The ways to consume, chosen at the mint.
const (
	takesByStep = iota // NextBatch when the script says so
	takesAtOnce        // a goroutine that waits in NextBatch
	sinkTakes          // a sink that takes all
	sinkNotNow         // a sink that says "not now" at each third call; the script then has NextBatch called
	consumerKinds
)

const (
	maxFailSteps   = 250
	maxFailStreams = 12
	// maxFailSleep is how long a script may keep lanes from their connections: none may be lost, whatever happens.
	maxFailSleep = wire.MaxResume / 2
)

var passed = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func runFailover(t *testing.T, s *script) {
	a, b, c := s.byte(), s.byte(), s.byte()
	gap := []time.Duration{-1, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond}[a>>2&3]
	window := 4 << 10 << (b & 3)
	both := Config{GapMax: gap, NoUrgent: a&16 != 0, NoInlineWrite: a&32 != 0, ResumeTimeout: wire.MaxResume}
	if b&4 != 0 {
		both.Log = wire.MinLog
	}
	recv, send := both, both
	recv.Lanes, recv.Window, recv.MaxBuffered = 1+int(a&3), window, 64<<30
	send.MaxReplay = 64 << 30
	mem := memory.Config{TryWrite: a&64 != 0, Buffer: 1 << (9 + c&7),
		Latency: []time.Duration{0, 0, time.Millisecond, 20 * time.Millisecond}[c>>3&3]}
	r := &failover{script: s, t: t}
	r.connect(recv, send, mem, 1+int(c>>5&1))
	for step := 0; s.more() && step < maxFailSteps; step++ {
		op := s.byte()
		r.step(op & 15)
		if op < 128 {
			synctest.Wait()
		}
		if t.Failed() {
			t.Fatalf("at step %d", step)
		}
	}
	r.finish()
}

// connect makes the pair over one plane or two.
func (r *failover) connect(recv, send Config, mem memory.Config, planes int) {
	t, id := r.t, workerID
	recv.ID, send.ID = frontID, id
	r.p = &pair{id: id}
	var err error
	if r.p.send, err = NewWorkerNode(send); err != nil {
		t.Fatal(err)
	}
	var fronts []transport.Transport
	peer := Peer{ID: id}
	for i := range planes {
		mem.Plane = []string{"first", "second"}[i]
		n := memory.NewNetwork(mem)
		ln, err := n.Transport(id).Listen(t.Context(), "worker:1", 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.p.send.Serve(ln); err != nil {
			t.Fatal(err)
		}
		r.nets, fronts = append(r.nets, n), append(fronts, n.Transport(frontID))
		peer.Planes = append(peer.Planes, PeerPlane{Plane: mem.Plane, Endpoints: []string{failAddress}})
	}
	if r.p.recv, err = NewFrontendNode(recv, fronts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.p.close(t) })
	if err := r.p.recv.AddPeer(peer); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all lanes", func() bool { return r.p.state().Lanes == recv.Lanes })
}

const failAddress = "worker:1"

// step runs one operation.
func (r *failover) step(op byte) {
	switch op {
	case 0, 1:
		r.mint()
	case 2:
		r.with((*failStream).attach)
	case 3, 4:
		r.with(func(s *failStream) { s.send(r.byte(), r.byte()) })
	case 5:
		r.with(func(s *failStream) {
			if s.writable() {
				s.endIt(End{Type: []EndType{EndComplete, EndFailed}[r.byte()%2], Code: 3, Trailer: make([]byte, 104)})
			}
		})
	case 6:
		r.with((*failStream).takeReady)
	case 7:
		r.with(func(s *failStream) {
			s.stopped = s.stopped || s.in.End() == nil
			s.in.Stop()
		})
	case 8:
		r.with(func(s *failStream) { s.cancelBy(func() { s.in.Kill(End{Type: EndKilled, Text: "by the script"}) }) })
	case 9:
		r.with(func(s *failStream) {
			s.closed = true
			s.cancelBy(func() { _ = s.in.Close() })
		})
	case 10, 11:
		r.conn(func(c *memory.Conn) { c.Cut(nil) })
	case 12:
		r.plane(r.byte())
	case 13:
		r.conn((*memory.Conn).Stall)
	case 14:
		if how := r.byte(); how%2 == 0 {
			r.release()
		} else {
			r.conn(func(c *memory.Conn) { _ = c.CloseWrite() })
		}
	case 15:
		spans := [...]time.Duration{time.Millisecond, 60 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second}
		d := spans[r.byte()%4]
		if r.slept += d; r.slept < maxFailSleep {
			time.Sleep(d)
		}
	}
}

func (r *failover) mint() {
	kind := r.byte()
	if len(r.streams) == maxFailStreams {
		return
	}
	in, err := r.p.recv.Mint(r.t.Context(), r.p.id, MintOptions{})
	if errors.Is(err, ErrNoLink) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	s := &failStream{propertyStream: propertyStream{t: r.t, p: r.p, id: uint64(len(r.streams) + 1), in: in},
		consumer: kind % consumerKinds, done: make(chan struct{})}
	s.close = sync.OnceFunc(func() { close(s.done) })
	r.streams = append(r.streams, s)
	s.consume()
	if kind >= 128 {
		s.attach()
	}
}

// with uses one of the streams.
func (r *failover) with(use func(*failStream)) {
	if i := int(r.byte()); len(r.streams) > 0 {
		use(r.streams[i%len(r.streams)])
	}
}

// conn uses one end of one of the connections, also of those that are being made.
func (r *failover) conn(use func(*memory.Conn)) {
	i := int(r.byte())
	var conns []*memory.Conn
	for _, n := range r.nets {
		conns = append(conns, n.Conns()...)
	}
	if len(conns) == 0 {
		return
	}
	c := conns[i>>1%len(conns)]
	if i&1 == 1 {
		c = c.Peer()
	}
	use(c)
}

func (r *failover) release() {
	for _, n := range r.nets {
		n.Release()
	}
}

// plane takes the first plane away: its connections are cut and nobody answers there, so that all lanes go on over the
// second one. Or it gives it back and waits until the lanes may be on their way there, one after the other. Where there
// is one plane only, a connection is closed in good order instead.
func (r *failover) plane(how byte) {
	switch first := r.nets[0]; {
	case len(r.nets) == 1:
		r.conn(func(c *memory.Conn) { _ = c.Close() })
	case how&1 == 0:
		first.Refuse(failAddress, nil)
		first.Cut(nil)
	default:
		first.Allow(failAddress)
		r.release()
		time.Sleep(time.Minute + time.Duration(how>>1)*50*time.Millisecond)
		r.slept = 0
	}
}

// attach is the arrival of the request; the second time it must be refused.
func (s *failStream) attach() {
	out, err := s.p.send.Attach(s.in.Terms())
	switch {
	case s.attached && !errors.Is(err, ErrStaleTerms):
		s.errorf("attached twice: %v", err)
	case !s.attached && err != nil && (!errors.Is(err, ErrStaleTerms) || !s.canceled):
		s.errorf("attach: %v", err)
	case !s.attached && err == nil:
		s.out = out
	}
	s.attached = true
}

// writable says whether the worker may write: one goroutine at a time does.
func (s *failStream) writable() bool {
	if s.sending != nil {
		select {
		case <-s.sending:
		default:
			return false
		}
	}
	return s.out != nil && !s.ended
}

// send puts up to 32 records and flushes, until the window is full: a script does not wait. The largest size is a
// record in fragments, which waits for the window on a goroutine of its own.
func (s *failStream) send(how, size byte) {
	if !s.writable() {
		return
	}
	if size == 255 {
		s.sending = make(chan struct{})
		rec := makeRecord(nil, s.id, s.put, int(1+how)<<8)
		s.mu.Lock()
		s.put++
		s.mu.Unlock()
		go func() {
			defer close(s.sending)
			if err := s.out.Send(context.Background(), rec); err != nil {
				s.refused(err)
			}
		}()
		return
	}
	var rec []byte
	for range 1 + how%32 {
		rec = makeRecord(rec, s.id, s.put, int(size)*(1+int(how>>5)))
		s.mu.Lock()
		s.put++
		s.mu.Unlock()
		err := s.out.TryPut(rec)
		if err == nil {
			continue
		}
		s.mu.Lock()
		s.put--
		s.mu.Unlock()
		if errors.Is(err, ErrWindowFull) || errors.Is(err, ErrRecordTooLarge) {
			break
		}
		s.refused(err)
		return
	}
	if how&16 == 0 {
		s.out.Flush()
	}
}

// refused looks at why a write failed: because of a cancel, and of nothing else.
func (s *failStream) refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end, wrong := endType(err); wrong != nil || end != EndKilled || !s.canceled {
		s.errorf("write: %v", err)
	}
}

func (s *failStream) endIt(end End) {
	s.mu.Lock()
	s.ended, s.end = true, end.Type
	s.mu.Unlock()
	if err := s.out.Fail(end); err != nil {
		s.refused(err)
	}
}

func (s *failStream) cancelBy(cancel func()) {
	s.mu.Lock()
	s.canceled = true
	s.mu.Unlock()
	cancel()
}

// consume starts what consumes by itself.
func (s *failStream) consume() {
	switch s.consumer {
	case takesAtOnce:
		go func() { // ends with the stream, which finish sees to
			for {
				batch, err := s.in.NextBatch(context.Background())
				if err != nil {
					s.finished(err)
					s.close()
					return
				}
				for _, rec := range batch {
					s.check(rec)
				}
			}
		}()
	case sinkTakes, sinkNotNow:
		calls, told := 0, false
		s.in.onRecords(func(recs [][]byte, end *End) bool {
			if told {
				s.errorf("the sink is told twice of its end")
			}
			told = end != nil
			if calls++; s.consumer == sinkNotNow && calls%3 == 1 {
				return false
			}
			for _, rec := range recs {
				s.check(rec)
			}
			if end != nil {
				s.finished(endError(end))
				s.close()
			}
			return true
		})
	}
}

// takeReady takes what is ready, of a stream that is pulled.
func (s *failStream) takeReady() {
	if s.over || s.consumer == takesAtOnce || s.consumer == sinkTakes {
		return
	}
	for {
		batch, err := s.in.NextBatch(passed)
		switch {
		case errors.Is(err, context.Canceled):
			return // there is nothing
		case err != nil:
			s.finished(err)
			s.over = true
			s.close()
			return
		case batch == nil:
			return // the sink has the stream
		}
		for _, rec := range batch {
			s.check(rec)
		}
	}
}

// finish brings every stream to its end over connections that live, and looks at what is left.
func (r *failover) finish() {
	r.release()
	for _, s := range r.streams {
		if !s.attached {
			s.attach()
		}
	}
	for _, s := range r.streams {
		r.await(s)
		_ = s.in.Close()
	}
	for wait := 0; !r.p.isSettled(); wait++ {
		if wait > 60_000 {
			r.p.dump(r.t)
			r.t.Fatal("streams are left")
		}
		time.Sleep(time.Millisecond)
	}
	for name, st := range map[string]Stats{"frontend": r.p.recv.Stats(), "worker": r.p.send.Stats()} {
		if st.StreamsEnded["protocol"]+st.StreamsEnded["lost"]+st.LaneDeaths[pipe.DownProtocol] != 0 {
			r.t.Errorf("%s: ends %v, deaths %v", name, st.StreamsEnded, st.LaneDeaths)
		}
	}
}

// await waits for a stream's end at its consumer.
func (r *failover) await(s *failStream) {
	for end := time.Now().Add(10 * time.Minute); ; { // fake time
		if s.writable() && (!s.stopped || s.out.Stopping() || s.out.Err() != nil) { // STOP must arrive
			s.endIt(End{Type: EndComplete, Trailer: make([]byte, 104)})
		}
		s.takeReady()
		select {
		case <-s.done:
			return
		case <-time.After(10 * time.Millisecond):
		}
		switch {
		case s.closed && (s.consumer == sinkTakes || s.consumer == sinkNotNow):
			s.over = true // its sink may or may not have been told
			if s.sending != nil {
				<-s.sending
			}
			return
		case time.Now().After(end):
			s.errorf("hangs: %d records put, %d got, end at the worker %v", s.put, s.got, s.ended)
			r.p.dump(r.t)
			r.t.FailNow()
		}
	}
}
