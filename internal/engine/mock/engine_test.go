package mock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// TestTimes: the first token when the prefill is done, the others at the passes, whatever the request's arrival.
func TestTimes(t *testing.T) {
	run(t, Config{}, func(t *testing.T, e *Engine, c *counts) {
		a := submit(t, e, req("a", 4)) // at 0; passes at 0 (nothing to do), 200, 400, ...
		time.Sleep(50 * ms)
		b := submit(t, e, req("b", 3))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, at := a.tokens(); !slices.Equal(at, []time.Duration{20 * ms, 200 * ms, 400 * ms, 600 * ms}) {
			t.Errorf("a's tokens came at %v", at)
		}
		if _, at := b.tokens(); !slices.Equal(at, []time.Duration{20 * ms, 150 * ms, 350 * ms}) {
			t.Errorf("b's tokens came at %v (since 50 ms)", at)
		}
		a.wantEnd(t, mockproto.FinishLength, 4)
		b.wantEnd(t, mockproto.FinishLength, 3)
		if !slices.Equal(c.now().first, []time.Duration{ttft, ttft}) {
			t.Errorf("times to first token %v", c.now().first)
		}
		// Two first tokens, passes at 200, 400, 600: one flush each, not one a token.
		if len(c.now().flushes) != 5 {
			t.Errorf("%d flushes, want 5: %v", len(c.now().flushes), c.now().flushes)
		}
		for _, l := range c.now().late {
			if l != 0 {
				t.Errorf("a pass was %v late in a bubble where time stands still", l)
			}
		}
		if r, w := e.Load(); r != 0 || w != 0 {
			t.Errorf("load %d, %d after all ended", r, w)
		}
	})
}

func TestTokensVerify(t *testing.T) {
	for _, size := range []int{0, 4, 40} {
		run(t, Config{TokenBytes: size, OutputTokens: 33}, func(t *testing.T, e *Engine, c *counts) {
			w := submit(t, e, req("some-id", 0)) // the engine's own length
			time.Sleep(time.Minute)
			synctest.Wait()
			recs, _ := w.tokens()
			v := tokentext.NewVerifier("some-id")
			for _, r := range recs {
				v.Write([]byte(r))
				if size != 0 && len(r) != size {
					t.Errorf("token %q has %d bytes, want %d", r, len(r), size)
				}
			}
			if len(recs) != 33 || v.Tokens() != 33 || v.Finish(33) != 0 {
				t.Errorf("%d records, %d tokens, %d wrong; want 33, 33, 0", len(recs), v.Tokens(), v.Wrong())
			}
			w.wantEnd(t, mockproto.FinishStop, 33) // nobody asked for fewer
		})
	}
}

// TestAPassIsOneFlush: all running requests, one token each, one flush.
func TestAPassIsOneFlush(t *testing.T) {
	run(t, Config{}, func(t *testing.T, e *Engine, c *counts) {
		var ws []*script
		for range 100 {
			ws = append(ws, submit(t, e, req("x", 11)))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, w := range ws {
			w.wantEnd(t, mockproto.FinishLength, 11)
		}
		if len(c.now().flushes) != 11 { // all first tokens in one, ten passes
			t.Errorf("%d flushes, want 11", len(c.now().flushes))
		}
	})
}

func TestPlaces(t *testing.T) {
	run(t, Config{MaxNumSeqs: 2, MaxWaitingQueueLength: 3}, func(t *testing.T, e *Engine, c *counts) {
		var ws []*script
		for range 5 {
			ws = append(ws, submit(t, e, req("x", 2)))
		}
		var refused *RefusedError
		if err := e.Submit(req("y", 2), newScript()); !errors.As(err, &refused) || refused.Reason != RefusedBusy {
			t.Fatalf("the sixth request: %v, want busy", err)
		}
		synctest.Wait()
		if r, w := e.Load(); r != 2 || w != 3 {
			t.Errorf("load %d running, %d waiting; want 2, 3", r, w)
		}
		if err := e.Submit(req("y", 2), newScript()); !errors.As(err, &refused) || refused.Reason != RefusedBusy {
			t.Fatalf("the sixth request, later: %v, want busy", err)
		}
		if c.now().refused[RefusedBusy] != 2 {
			t.Errorf("refused %v", c.now().refused)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// A pair ends at each pass, and the next pair's prefill begins there.
		for i, w := range ws {
			_, at := w.tokens()
			gen := time.Duration(i/2) * itl
			if want := []time.Duration{gen + ttft, gen + itl}; !slices.Equal(at, want) {
				t.Errorf("request %d: tokens at %v, want %v", i, at, want)
			}
		}
		if err := e.Submit(req("z", 2), newScript()); err != nil {
			t.Errorf("there is room again: %v", err)
		}
	})
}

// TestOneTokenRequests keep taking the places that others of them leave within one step.
func TestOneTokenRequests(t *testing.T) {
	run(t, Config{MaxNumSeqs: 1, TimeToFirstToken: -1}, func(t *testing.T, e *Engine, c *counts) {
		var ws []*script
		for range 20 {
			ws = append(ws, submit(t, e, req("x", 1)))
		}
		synctest.Wait()
		for _, w := range ws {
			w.wantEnd(t, mockproto.FinishLength, 1)
		}
	})
}

func TestCancel(t *testing.T) {
	run(t, Config{MaxNumSeqs: 2, TimeToFirstToken: 300 * ms}, func(t *testing.T, e *Engine, c *counts) {
		running := submit(t, e, req("r", 100))
		time.Sleep(350 * ms)
		prefilling := submit(t, e, req("p", 100))
		waiting := submit(t, e, req("w", 100))
		time.Sleep(10 * ms)
		synctest.Wait()
		if running.count() != 1 || prefilling.count() != 0 {
			t.Fatalf("the set-up is not what the test needs: %d, %d tokens", running.count(), prefilling.count())
		}
		waiting.kill()
		prefilling.kill()
		time.Sleep(40 * ms) // the pass at 400
		synctest.Wait()
		if r, w := e.Load(); r != 1 || w != 0 || c.now().cancelled != 2 {
			t.Errorf("load %d, %d and %d cancelled; want 1, 0, 2", r, w, c.now().cancelled)
		}
		running.kill()
		time.Sleep(itl)
		synctest.Wait()
		if r, w := e.Load(); r != 0 || w != 0 || c.now().cancelled != 3 {
			t.Errorf("load %d, %d and %d cancelled; want 0, 0, 3", r, w, c.now().cancelled)
		}
		if running.count() != 2 || prefilling.count() != 0 || waiting.count() != 0 {
			t.Errorf("tokens %d, %d, %d; want 2, 0, 0", running.count(), prefilling.count(), waiting.count())
		}
		passes := len(c.now().late)
		time.Sleep(time.Minute)
		if len(c.now().late) != passes {
			t.Error("an idle engine makes passes")
		}
	})
}

func TestStop(t *testing.T) {
	run(t, Config{MaxNumSeqs: 1}, func(t *testing.T, e *Engine, c *counts) {
		a := submit(t, e, req("a", 100))
		b := submit(t, e, req("b", 100))
		time.Sleep(410 * ms) // 20, 200, 400
		a.stop.Store(true)
		b.stop.Store(true)
		time.Sleep(itl)
		synctest.Wait()
		a.wantEnd(t, mockproto.FinishStop, 3)
		b.wantEnd(t, mockproto.FinishStop, 0)
		if a.now().endAt != 600*ms || c.now().cancelled != 0 {
			t.Errorf("stopped at %v, %d cancelled; want 600ms, 0", a.now().endAt, c.now().cancelled)
		}
	})
}

func TestFullWindowParks(t *testing.T) {
	run(t, Config{}, func(t *testing.T, e *Engine, c *counts) {
		a := newScript()
		a.room = 2
		if err := e.Submit(req("a", 5), a); err != nil {
			t.Fatal(err)
		}
		b := submit(t, e, req("b", 20))
		time.Sleep(1010 * ms) // a: 20, 200, then full at 400
		synctest.Wait()
		if a.count() != 2 || a.now().refused != 1 || b.count() != 6 {
			t.Fatalf("a has %d tokens and was tried %d times in vain, b has %d; want 2, 1, 6", a.count(),
				a.now().refused, b.count())
		}
		a.makeRoom(2)
		time.Sleep(time.Second) // 1200, 1400, full at 1600
		synctest.Wait()
		a.makeRoom(10)
		time.Sleep(itl)
		synctest.Wait()
		recs, at := a.tokens()
		if want := []time.Duration{20 * ms, 200 * ms, 1200 * ms, 1400 * ms, 2200 * ms}; !slices.Equal(at, want) {
			t.Errorf("a's tokens came at %v, want %v", at, want)
		}
		a.wantEnd(t, mockproto.FinishLength, 5)
		v := tokentext.NewVerifier("a")
		v.Write([]byte(strings.Join(recs, "")))
		if v.Finish(5) != 0 {
			t.Errorf("%d tokens are wrong", v.Wrong())
		}
		// A parked request that is killed, and one that is stopped.
		k, s := newScript(), newScript()
		for _, w := range []*script{k, s} {
			w.room = 1
			if err := e.Submit(req("k", 5), w); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * itl)
		k.kill()
		s.stop.Store(true)
		time.Sleep(itl)
		synctest.Wait()
		s.wantEnd(t, mockproto.FinishStop, 1)
		if c.now().cancelled != 1 {
			t.Errorf("%d cancelled, want 1", c.now().cancelled)
		}
		k.makeRoom(1) // room that comes after the end moves nothing
		time.Sleep(itl)
		if k.count() != 1 {
			t.Errorf("a killed request went on")
		}
	})
}

// TestNoTurnWhileParked: waiting for a window costs nothing but the passes.
func TestNoTurnWhileParked(t *testing.T) {
	run(t, Config{}, func(t *testing.T, e *Engine, c *counts) {
		w := newScript()
		w.room = 0
		if err := e.Submit(req("a", 5), w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if w.now().refused != 1 || len(c.now().late) > 101 || len(c.now().flushes) != 0 {
			t.Errorf("%d tries, %d passes in 20 s, %d flushes; want 1, 100, 0", w.now().refused, len(c.now().late),
				len(c.now().flushes))
		}
		w.kill()
		time.Sleep(itl)
	})
}

func TestDrain(t *testing.T) {
	run(t, Config{MaxNumSeqs: 1}, func(t *testing.T, e *Engine, c *counts) {
		a := submit(t, e, req("a", 3))
		b := submit(t, e, req("b", 3))
		short, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		if err := e.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("drain with too little time: %v", err)
		}
		var refused *RefusedError
		if err := e.Submit(req("late", 1), newScript()); !errors.As(err, &refused) ||
			refused.Reason != RefusedDraining {
			t.Errorf("while draining: %v", err)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		a.wantEnd(t, mockproto.FinishLength, 3)
		b.wantEnd(t, mockproto.FinishLength, 3)
		if err := e.Drain(t.Context()); err != nil {
			t.Errorf("drain again: %v", err)
		}
	})
	run(t, Config{}, func(t *testing.T, e *Engine, c *counts) {
		if err := e.Drain(t.Context()); err != nil {
			t.Errorf("drain of an idle engine: %v", err)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	run(t, Config{MaxNumSeqs: 2, TimeToFirstToken: 100 * ms}, func(t *testing.T, e *Engine, c *counts) {
		a := submit(t, e, req("a", 100))
		time.Sleep(150 * ms)
		b, w, k := submit(t, e, req("b", 100)), submit(t, e, req("w", 100)), submit(t, e, req("k", 100))
		k.kill()
		e.Close()
		for _, s := range []*script{a, b, w} {
			if s.now().failed == nil || !s.now().failed.Retryable {
				t.Errorf("end %+v, want failed, retryable", s.now().failed)
			}
		}
		if c.now().cancelled != 1 {
			t.Errorf("%d cancelled, want 1", c.now().cancelled)
		}
		var refused *RefusedError
		if err := e.Submit(req("late", 1), newScript()); !errors.As(err, &refused) ||
			refused.Reason != RefusedDraining {
			t.Errorf("after Close: %v", err)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		e.Close()
	})
}

// TestLatePasses: an engine that the machine held up makes one pass, says how late it was and how many it missed, and
// keeps its time table.
func TestLatePasses(t *testing.T) {
	hold := make(chan struct{})
	var held bool
	synctest.Test(t, func(t *testing.T) {
		c := new(counts)
		hold = make(chan struct{})
		e, err := Start(Config{Observer: c, Flush: func() {
			c.flush()
			if len(c.now().flushes) == 2 && !held { // the pass at 200
				held = true
				<-hold
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		w := submit(t, e, req("a", 6))
		time.Sleep(870 * ms)
		close(hold) // 400, 600 and 800 were missed: one pass now, then 1000, 1200
		time.Sleep(time.Second)
		synctest.Wait()
		if _, at := w.tokens(); !slices.Equal(at, []time.Duration{20 * ms, 200 * ms, 870 * ms, 1000 * ms, 1200 * ms,
			1400 * ms}) {
			t.Errorf("tokens came at %v", at)
		}
		// The first pass is the one at 0, before anything decodes.
		if want := []time.Duration{0, 0, 470 * ms, 0, 0, 0}; !slices.Equal(c.now().late, want) || c.now().skipped != 2 {
			t.Errorf("late %v, want %v; %d skipped, want 2", c.now().late, want, c.now().skipped)
		}
	})
}
