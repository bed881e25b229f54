package mux

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/transport/memory"
)

// FuzzFailover runs streams over lanes that the script cuts, closes by plan, half-closes, stalls and releases, at either end and in either
// direction, while it sends, takes, stops, kills and closes. The oracle of TestProperty counts what arrives: every record once and in
// order, one end a stream and side, the right one, and nothing left. Time is fake, so a script costs milliseconds whatever it waits for.
//
// The first three bytes are the set-up. Then each step is an operation (its low four bits; the high bit: the next step does not wait
// until this one has done all it does) and its arguments.
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
	streams []*failStream
}

// failStream is a stream, the two ends' use of it, and its oracle.
type failStream struct {
	propertyStream
	out      *OutStream // nil until the request has arrived
	minted   time.Time
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
	r := &failover{script: s, t: t, p: newPair(t, pairConfig{
		// No lane may be away for long enough to end the link: whatever happens, every stream has to go on.
		recv: Config{Lanes: 1 + int(a&3), Window: window, MaxBuffered: 64 << 30, GapMax: gap, NoUrgent: a&16 != 0, NoInlineWrite: a&32 != 0, ResumeTimeout: time.Hour},
		send: Config{MaxReplay: 64 << 30, GapMax: gap, NoUrgent: a&16 != 0, NoInlineWrite: a&32 != 0, ResumeTimeout: time.Hour},
		mem:  memory.Config{TryWrite: a&64 != 0, Buffer: 1 << (9 + c&7), Latency: []time.Duration{0, 0, time.Millisecond, 20 * time.Millisecond}[c>>3&3]},
	})}
	for step := 0; s.more() && step < maxFailSteps; step++ {
		op := s.byte()
		for _, s := range r.streams {
			// A worker that has heard of a request forgets it after a minute: it is refused then, or lost over a death.
			if !s.attached && time.Since(s.minted) > earlyLife-10*time.Second {
				s.attach()
			}
		}
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
		r.planned(r.byte())
	case 13:
		r.conn((*memory.Conn).Stall)
	case 14:
		if how := r.byte(); how%2 == 0 {
			r.p.net.Release()
		} else {
			r.conn(func(c *memory.Conn) { _ = c.CloseWrite() })
		}
	case 15:
		time.Sleep([]time.Duration{time.Millisecond, 60 * time.Millisecond, 500 * time.Millisecond, 4 * time.Second}[r.byte()%4])
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
	s := &failStream{propertyStream: propertyStream{t: r.t, p: r.p, id: uint64(len(r.streams) + 1), in: in}, consumer: kind % consumerKinds, minted: time.Now(), done: make(chan struct{})}
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
	conns := r.p.net.Conns()
	if len(conns) == 0 {
		return
	}
	c := conns[i>>1%len(conns)]
	if i&1 == 1 {
		c = c.Peer()
	}
	use(c)
}

// planned closes a lane that is up, from the frontend's or the worker's side.
func (r *failover) planned(which byte) {
	lanes := *r.p.send.flushable.Load()
	if which&1 == 0 {
		lanes = nil
		if k := r.p.recv.peer(r.p.id).link.Load(); k != nil {
			lanes = k.upLanes()
		}
	}
	if len(lanes) > 0 {
		lanes[int(which>>1)%len(lanes)].die(deathClosed, errLaneClosed)
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

// send puts up to 32 records and flushes, until the window is full: a script does not wait. The largest size is a record in fragments,
// which waits for the window on a goroutine of its own.
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

// finish brings every stream to its end over lanes that live, and looks at what is left.
func (r *failover) finish() {
	r.p.net.Release()
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
		if st.StreamsEnded["protocol"]+st.StreamsEnded["lost"]+st.LaneDeaths[deathProtocol] != 0 {
			r.t.Errorf("%s: ends %v, deaths %v", name, st.StreamsEnded, st.LaneDeaths)
		}
	}
}

// await waits for a stream's end at its consumer.
func (r *failover) await(s *failStream) {
	for end := time.Now().Add(10 * time.Minute); ; { // fake time
		if s.writable() && (!s.stopped || s.out.Stopping() || s.out.Err() != nil) { // STOP must arrive, over whatever lanes
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
