package mock

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms   = time.Millisecond
	ttft = 20 * ms
	itl  = 200 * ms
)

// script is a Writer whose far end is a test.
type script struct {
	start time.Time
	err   atomic.Pointer[error]
	stop  atomic.Bool

	mu    sync.Mutex
	room  int // records that fit, -1 for any number
	fn    func()
	armed bool // TryPut said ErrWindowFull, and fn was not called since
	heard
}

type heard struct {
	recs    []string
	at      []time.Duration // since start
	refused int             // TryPuts that did not fit
	trailer []byte
	failed  *responseplane.Failure
	endAt   time.Duration
	ended   bool
}

// now is what was heard so far. Engines go on meanwhile, so tests must not look at the fields themselves.
func (w *script) now() heard {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.heard
	h.recs, h.at = slices.Clone(h.recs), slices.Clone(h.at)
	return h
}

var errKilled = errors.New("killed")

func newScript() *script { return &script{start: time.Now(), room: -1} }

func (w *script) TryPut(rec []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		panic("TryPut after the end")
	}
	if e := w.err.Load(); e != nil {
		return *e
	}
	if w.room == 0 {
		w.armed = true
		w.refused++
		return fmt.Errorf("wrapped: %w", responseplane.ErrWindowFull)
	}
	if w.room > 0 {
		w.room--
	}
	w.recs = append(w.recs, string(rec))
	w.at = append(w.at, time.Since(w.start))
	return nil
}

func (w *script) OnWritable(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fn = fn
}

// makeRoom lets n more records in and tells the engine, if that waits.
func (w *script) makeRoom(n int) {
	w.mu.Lock()
	w.room += n
	fn, armed := w.fn, w.armed
	w.armed = false
	w.mu.Unlock()
	if armed {
		fn()
	}
}

func (w *script) Err() error {
	if e := w.err.Load(); e != nil {
		return *e
	}
	return nil
}

func (w *script) kill() { w.err.Store(&errKilled) }

func (w *script) StopRequested() bool { return w.stop.Load() }

func (w *script) PutComplete(trailer []byte) error {
	w.finish(slices.Clone(trailer), nil)
	return nil
}

func (w *script) Fail(f responseplane.Failure) error {
	w.finish(nil, &f)
	return nil
}

func (w *script) finish(trailer []byte, failed *responseplane.Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		panic("two ends")
	}
	w.ended, w.endAt, w.trailer, w.failed = true, time.Since(w.start), trailer, failed
}

// tokens returns what has been written so far, and when.
func (w *script) tokens() ([]string, []time.Duration) {
	h := w.now()
	return h.recs, h.at
}

func (w *script) count() int { return len(w.now().recs) }

// wantEnd checks a complete end.
func (w *script) wantEnd(t *testing.T, reason string, tokens int) {
	t.Helper()
	h := w.now()
	if !h.ended || h.trailer == nil {
		t.Fatalf("the response has not completed (ended %v, failed %+v, %d tokens)", h.ended, h.failed, len(h.recs))
	}
	tr, err := mockproto.DecodeTrailer(h.trailer)
	if err != nil {
		t.Fatal(err)
	}
	if tr.FinishReason != reason || tr.CompletionTokens != tokens || tr.PromptTokens != 7 {
		t.Errorf("trailer %+v, want %s, %d tokens, 7 prompt tokens", tr, reason, tokens)
	}
}

// counts is an Observer that keeps everything.
type counts struct {
	mu sync.Mutex
	observed
}

type observed struct {
	first     []time.Duration
	late      []time.Duration
	skipped   int
	cancelled int
	refused   map[RefuseReason]int
	injected  map[FailureType]int
	held      int
	flushes   []time.Time
}

// now is what was observed so far. Engines go on meanwhile, so tests must not look at the fields themselves.
func (c *counts) now() observed {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.observed
	o.first, o.late, o.flushes, o.refused = slices.Clone(o.first), slices.Clone(o.late), slices.Clone(o.flushes),
		maps.Clone(o.refused)
	o.injected = maps.Clone(o.injected)
	return o
}

func (c *counts) FirstToken(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first = append(c.first, d)
}
func (c *counts) Pass(late time.Duration, skipped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, late)
	c.skipped += skipped
}
func (c *counts) Cancelled() { c.mu.Lock(); defer c.mu.Unlock(); c.cancelled++ }
func (c *counts) Refused(r RefuseReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = make(map[RefuseReason]int)
	}
	c.refused[r]++
}
func (c *counts) Injected(f FailureType) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.injected == nil {
		c.injected = make(map[FailureType]int)
	}
	c.injected[f]++
}
func (c *counts) Held() { c.mu.Lock(); defer c.mu.Unlock(); c.held++ }
func (c *counts) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushes = append(c.flushes, time.Now())
}

func req(id string, tokens int) mockproto.Request {
	return mockproto.Request{ID: id, Model: "m", Kind: mockproto.KindChat, PromptTokens: 7, MaxTokens: tokens}
}

// run starts an engine in a synctest bubble and closes it afterwards.
func run(t *testing.T, cfg Config, f func(t *testing.T, e *Engine, c *counts)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := new(counts)
		cfg.Flush, cfg.Observer = c.flush, c
		e, err := Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		f(t, e, c)
	})
}

func submit(t *testing.T, e *Engine, r mockproto.Request) *script {
	t.Helper()
	w := newScript()
	if err := e.Submit(r, w); err != nil {
		t.Fatal(err)
	}
	return w
}
