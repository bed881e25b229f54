package mockengine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/leaktest"
	"github.com/laneway-ai/laneway/internal/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	ms   = time.Millisecond
	ttft = 20 * ms
	itl  = 200 * ms
)

// script is a Writer whose far end is a test.
type script struct {
	mu      sync.Mutex
	recs    []string
	at      []time.Duration // since start
	start   time.Time
	room    int // records that fit, -1 for any number
	fn      func()
	armed   bool // TryPut said responseplane.ErrWindowFull, and fn was not called since
	trailer []byte
	failed  *responseplane.Failure
	endAt   time.Duration
	ended   bool
	err     atomic.Pointer[error]
	stop    atomic.Bool
	refused int // TryPuts that did not fit
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

func (w *script) Stopping() bool { return w.stop.Load() }

func (w *script) Complete(trailer []byte) error {
	w.finish()
	w.trailer = append([]byte(nil), trailer...)
	return nil
}

func (w *script) Fail(f responseplane.Failure) error {
	w.finish()
	w.failed = &f
	return nil
}

func (w *script) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		panic("two ends")
	}
	w.ended, w.endAt = true, time.Since(w.start)
}

// tokens returns what has been written so far, and when.
func (w *script) tokens() ([]string, []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.recs...), append([]time.Duration(nil), w.at...)
}

func (w *script) count() int { r, _ := w.tokens(); return len(r) }

// wantEnd checks a complete end.
func (w *script) wantEnd(t *testing.T, reason string, tokens int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended || w.trailer == nil {
		t.Fatalf("the response has not completed (ended %v, failed %+v, %d tokens)", w.ended, w.failed, len(w.recs))
	}
	tr, err := mockproto.DecodeTrailer(w.trailer)
	if err != nil {
		t.Fatal(err)
	}
	if tr.FinishReason != reason || tr.CompletionTokens != tokens || tr.PromptTokens != 7 {
		t.Errorf("trailer %+v, want %s, %d tokens, 7 prompt tokens", tr, reason, tokens)
	}
}

// counts is an Observer that keeps everything.
type counts struct {
	mu        sync.Mutex
	first     []time.Duration
	late      []time.Duration
	skipped   int
	cancelled int
	refused   map[RefuseReason]int
	flushes   []time.Time
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
