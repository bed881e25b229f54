package mux

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

var (
	propertySeed  = flag.Uint64("property.seed", 0, "run only this seed of TestProperty")
	propertySeeds = flag.Uint64("property.seeds", 20, "how many seeds TestProperty runs")
)

// TestProperty runs random streams over random links while lanes die, and holds what arrives against an oracle: every
// record once, in order, to the right stream; one end per stream and side, the right one; and nothing left when it is
// over. It runs in fake time, so a slow machine changes nothing.
func TestProperty(t *testing.T) {
	first, last := uint64(1), *propertySeeds
	if underRace {
		last = (last + 3) / 4
	}
	if *propertySeed != 0 {
		first, last = *propertySeed, *propertySeed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runProperty(t, seed) })
		})
		if t.Failed() {
			t.Fatalf("again with: go test -run TestProperty -property.seed=%d", seed)
		}
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func runProperty(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	gap := pick(r, -1, time.Millisecond, 2*time.Millisecond, 5*time.Millisecond)
	noUrgent, noInline := r.IntN(3) == 0, r.IntN(3) == 0
	window := 4 << 10 << r.IntN(9)
	cfg := pairConfig{
		recv: Config{Lanes: 1 + r.IntN(4), Window: window, MaxBuffered: 64 << 30, GapMax: gap, NoUrgent: noUrgent,
			NoInlineWrite: noInline,
			ResumeTimeout: wire.MaxResume},
		send: Config{MaxReplay: 64 << 30, GapMax: gap, NoUrgent: noUrgent, NoInlineWrite: noInline,
			ResumeTimeout: wire.MaxResume},
		mem: memory.Config{TryWrite: r.IntN(2) == 0, Buffer: 1 << (10 + r.IntN(9)),
			Latency: pick(r, 0, 0, time.Millisecond, 20*time.Millisecond),
			Rate:    pick(r, 0, 0, 0, 2<<20)},
	}
	t.Logf("lanes %d, window %d, gap %v, no urgent %t, no inline %t, network %+v", cfg.recv.Lanes, window, gap,
		noUrgent, noInline, cfg.mem)
	p := newPair(t, cfg)
	for round := range 3 {
		stop := make(chan struct{})
		var chaos, streams sync.WaitGroup
		if round < 2 {
			chaosRand := rand.New(rand.NewPCG(seed, 1000+uint64(round)))
			chaos.Go(func() { p.chaos(chaosRand, stop) })
		}
		for i := range 40 {
			id := uint64(round*100 + i + 1)
			streams.Go(func() {
				sr := rand.New(rand.NewPCG(seed, id))
				time.Sleep(time.Duration(sr.IntN(200)) * time.Millisecond)
				newPropertyStream(t, p, sr, id, window, round == 2).run()
			})
		}
		streams.Wait()
		close(stop)
		chaos.Wait()
		for wait := 0; !p.isSettled(); wait++ {
			if wait > 60_000 {
				p.dump(t)
				t.Fatal("streams are left")
			}
			time.Sleep(time.Millisecond)
		}
		if t.Failed() {
			return
		}
	}
	for name, st := range map[string]Stats{"frontend": p.recv.Stats(), "worker": p.send.Stats()} {
		if st.StreamsEnded["protocol"]+st.StreamsEnded["lost"]+st.LaneDeaths[pipe.DownProtocol] != 0 {
			t.Errorf("%s: ends %v, deaths %v", name, st.StreamsEnded, st.LaneDeaths)
		}
		for _, l := range st.Lanes {
			if l.Streams != 0 || l.QueueBytes != 0 {
				t.Errorf("%s: lane %d has %d streams and %d queued bytes after all have ended", name, l.Lane, l.Streams,
					l.QueueBytes)
			}
		}
	}
}

// dump says what is left of streams.
func (p *pair) dump(t *testing.T) {
	for _, k := range p.recv.all() {
		k.mu.Lock()
		t.Logf("frontend: %d live", k.live)
		k.each(func(s *InStream) {
			t.Logf("  slot %d number %d state %d lane %d wants %b received %d unread %d reported %d", s.slot.Index(),
				s.number,
				s.state, s.lane.index, s.wants, s.received, s.unread, s.reported)
		})
		k.mu.Unlock()
	}
	for _, k := range p.send.all() {
		t.Logf("worker: link %d, %d live", k.link.Number(), k.Open())
		k.mu.Lock()
		k.each(func(s *OutStream) {
			t.Logf("  slot %d number %d begun %t ended %t lane %d sent %d consumed %d later %d", s.slot.Index(),
				s.number, s.begun,
				s.ended, s.lane.index, s.sent, s.consumed, len(s.later)-s.laterAt)
		})
		k.mu.Unlock()
	}
	t.Logf("frontend %+v", p.recv.Stats())
	t.Logf("worker %+v", p.send.Stats())
}

// chaos makes lanes die in every way, stall and crawl.
func (p *pair) chaos(r *rand.Rand, stop chan struct{}) {
	defer p.net.Release()
	over := time.After(2 * time.Second) // a slow network must get some rest to bring anything across
	for {
		select {
		case <-stop:
			return
		case <-over:
			return
		case <-time.After(time.Duration(r.IntN(60)) * time.Millisecond):
		}
		conns := p.net.Conns()
		if len(conns) == 0 {
			continue
		}
		c := pick(r, conns...)
		if r.IntN(2) == 0 {
			c = c.Peer()
		}
		switch r.IntN(8) {
		case 0, 1:
			c.Cut(nil)
		case 2:
			_ = c.Close()
		case 4: // one direction stops, so that one side learns first
			c.Stall()
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
				c.Release()
			}
		case 5:
			_ = c.CloseWrite()
		default:
		}
	}
}

// propertyStream is one stream with what its worker and its consumer do, and the oracle.
type propertyStream struct {
	t      *testing.T
	p      *pair
	id     uint64
	window int
	calm   bool // nothing is cancelled
	work   *rand.Rand
	take   *rand.Rand

	in *InStream

	mu       sync.Mutex
	put      int  // records that the worker has put
	ended    bool // by the worker
	end      EndType
	got      int
	canceled bool
}

func newPropertyStream(t *testing.T, p *pair, r *rand.Rand, id uint64, window int, calm bool) *propertyStream {
	return &propertyStream{t: t, p: p, id: id, window: window, calm: calm,
		work: rand.New(rand.NewPCG(r.Uint64(), 1)), take: rand.New(rand.NewPCG(r.Uint64(), 2))}
}

func (s *propertyStream) errorf(format string, a ...any) {
	s.t.Errorf("stream %d: %s", s.id, fmt.Sprintf(format, a...))
}

func (s *propertyStream) run() {
	for s.in == nil {
		in, err := s.p.recv.Mint(s.t.Context(), s.p.id, MintOptions{})
		switch {
		case errors.Is(err, ErrNoLink):
			time.Sleep(5 * time.Millisecond)
		case err != nil:
			s.errorf("mint: %v", err)
			return
		}
		s.in = in
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	s.consumer(&wg, done)
	cancels := !s.calm && s.take.IntN(3) == 0
	never := cancels && s.work.IntN(4) == 0
	if cancels {
		kind, after := s.take.IntN(3), time.Duration(s.take.IntN(400))*time.Millisecond
		if s.take.IntN(3) == 0 {
			after = 0
		}
		if never && kind == 0 {
			kind = 1 // a STOP does not end what never runs
		}
		wg.Go(func() { s.cancel(kind, after) })
	}
	if !never {
		wg.Go(s.worker)
	}
	select {
	case <-done:
	case <-time.After(10 * time.Minute): // fake time
		s.errorf("hangs: %d records put, %d got, end at the worker %v", s.put, s.got, s.ended)
		s.in.Kill(End{Type: EndKilled})
	}
	_ = s.in.Close()
	wg.Wait()
}

func (s *propertyStream) cancel(kind int, after time.Duration) {
	time.Sleep(after)
	if kind == 0 {
		s.in.Stop()
		return
	}
	s.mu.Lock()
	s.canceled = true
	s.mu.Unlock()
	if kind == 1 {
		s.in.Kill(End{Type: EndKilled, Text: "by the test"})
		return
	}
	_ = s.in.Close()
}

// worker is the request's arrival and the engine.
func (s *propertyStream) worker() {
	r := s.work
	time.Sleep(time.Duration(r.IntN(3)*r.IntN(100)) * time.Millisecond)
	out, err := s.p.send.Attach(s.in.Terms())
	if r.IntN(4) == 0 { // the request comes twice
		if _, err := s.p.send.Attach(s.in.Terms()); !errors.Is(err, ErrStaleTerms) {
			s.errorf("attached twice: %v", err)
		}
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !errors.Is(err, ErrStaleTerms) || !s.canceled {
			s.errorf("attach: %v", err)
		}
		return
	}
	mode, pace := r.IntN(3), r.IntN(3)
	room := make(chan struct{}, 1)
	out.OnWritable(func() { signal(room) })
	count := r.IntN(80)
	var rec []byte
	for i := 0; i < count && !out.Stopping(); i++ {
		rec = makeRecord(rec, s.id, i, s.size(r))
		s.mu.Lock()
		s.put++ // before: it may arrive before Put returns
		s.mu.Unlock()
		if err := s.putOne(out, rec, mode, room); err != nil {
			if end, wrong := endType(err); wrong != nil || end != EndKilled {
				s.errorf("put %d: %v", i, err)
			}
			return
		}
		if pace > 0 && r.IntN(4) == 0 {
			out.Flush()
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		}
	}
	end := End{Type: EndComplete, Trailer: makeRecord(nil, s.id, count, 100)}
	if r.IntN(5) == 0 {
		end = End{Type: EndFailed, Code: 3, Text: "by the engine"}
	}
	s.mu.Lock()
	s.ended, s.end = true, end.Type
	s.mu.Unlock()
	if err := out.Fail(end); err != nil {
		if got, wrong := endType(err); wrong != nil || got != EndKilled {
			s.errorf("end: %v", err)
		}
	}
}

// size is that of the next record: mostly a token, sometimes a fragmented one.
func (s *propertyStream) size(r *rand.Rand) int {
	switch n := r.IntN(100); {
	case n < 75:
		return r.IntN(200)
	case n < 95:
		return r.IntN(min(s.window/2, 40<<10))
	case n < 99:
		return r.IntN(min(2*s.window, 200<<10))
	}
	return min(4*s.window, 200<<10)
}

func (s *propertyStream) putOne(out *OutStream, rec []byte, mode int, room chan struct{}) error {
	switch mode {
	case 0:
		return out.Send(s.t.Context(), rec)
	case 1:
		return out.Put(s.t.Context(), rec) // flushed at the end, or when the window is full, or by others
	}
	for {
		err := out.TrySend(rec)
		switch {
		case errors.Is(err, ErrWindowFull):
			<-room
		case errors.Is(err, ErrRecordTooLarge):
			return out.Send(s.t.Context(), rec)
		default:
			return err
		}
	}
}

// consumer starts one of the ways to consume; done is closed when the stream has ended for it.
func (s *propertyStream) consumer(wg *sync.WaitGroup, done chan struct{}) {
	r := s.take
	slow := r.IntN(3) == 0
	rest := func() {
		if slow && r.IntN(8) == 0 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
	switch r.IntN(3) {
	case 0:
		wg.Go(func() {
			defer close(done)
			for {
				rec, err := s.in.Next(s.t.Context())
				if err != nil {
					s.finished(err)
					return
				}
				s.check(rec)
				rest()
			}
		})
	case 1:
		wg.Go(func() { s.pull(rest, func() { close(done) }) })
	default:
		s.useSink(wg, rest, done)
	}
}

// pull takes batches until the end (then it calls finish and says so) or until a sink has the stream again.
func (s *propertyStream) pull(rest, finish func()) (ended bool) {
	for {
		batch, err := s.in.NextBatch(s.t.Context())
		if err != nil {
			s.finished(err)
			finish()
			return true
		}
		if batch == nil {
			return false
		}
		for _, rec := range batch {
			s.check(rec)
		}
		rest()
		for i, rec := range batch { // what is held stays as it was
			if err := checkRecord(rec, s.id, s.got-len(batch)+i); err != nil {
				s.errorf("held: %v", err)
			}
		}
	}
}

func (s *propertyStream) useSink(wg *sync.WaitGroup, rest func(), done chan struct{}) {
	notNow := make(chan struct{}, 1)
	finish := sync.OnceFunc(func() { close(done) }) // Close may come while the last call is under way
	refuses := s.take.IntN(2) == 0
	picks := rand.New(rand.NewPCG(s.id, s.take.Uint64()))
	told := false
	s.in.onRecords(func(recs [][]byte, end *End) bool {
		if told {
			s.errorf("the sink is told twice of its end")
		}
		told = end != nil
		if refuses && picks.IntN(4) == 0 {
			signal(notNow)
			return false
		}
		for _, rec := range recs {
			s.check(rec)
		}
		if end != nil {
			s.finished(endError(end))
			finish()
		}
		return true
	})
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-notNow:
				if s.pull(rest, finish) {
					return
				}
			case <-time.After(time.Second):
				s.in.mu.Lock()
				closed := s.in.closed // by cancel: no more calls
				s.in.mu.Unlock()
				if closed {
					finish()
					return
				}
			}
		}
	})
}

func (s *propertyStream) check(rec []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := checkRecord(rec, s.id, s.got); err != nil {
		s.errorf("%v", err)
	}
	s.got++
	if s.got > s.put {
		s.errorf("%d records got, %d put", s.got, s.put)
	}
}

// finished is the oracle of ends.
func (s *propertyStream) finished(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.in.End()
	if end == nil {
		s.errorf("ended (%v) without an end", err)
		return
	}
	var other *EndError
	if errors.As(err, &other) {
		end = &other.End
	}
	switch {
	case err == io.EOF:
		if !s.ended || s.end != EndComplete || s.got != s.put || len(end.Trailer) != 104 {
			s.errorf("io.EOF after %d of %d records, the worker ended it: %t as %s", s.got, s.put, s.ended, s.end)
		}
	case end.Type == EndFailed:
		if !s.ended || s.end != EndFailed || s.got != s.put && !s.canceled || end.Code != 3 {
			s.errorf("failed after %d of %d records, the worker ended it: %t as %s", s.got, s.put, s.ended, s.end)
		}
	case end.Type == EndKilled:
		if !s.canceled {
			s.errorf("killed by nobody: %v", err)
		}
	default:
		s.errorf("ended: %v", err)
	}
}
