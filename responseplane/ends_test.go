package responseplane_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

var sentinels = []error{responseplane.ErrFailed, responseplane.ErrBusy, responseplane.ErrUnavailable,
	responseplane.ErrDeadline,
	responseplane.ErrLost, responseplane.ErrCanceled, responseplane.ErrProtocol}

// wantEnd checks an end against its row of the contract: one sentinel and no other, kind, code, retryable.
func wantEnd(t *testing.T, err error, sentinel error, kind responseplane.EndKind, code responseplane.Code,
	retryable bool) *responseplane.Error {
	t.Helper()
	var e *responseplane.Error
	if !errors.As(err, &e) {
		t.Fatalf("expected an *Error of kind %s, got %v", kind, err)
	}
	for _, s := range sentinels {
		if is := errors.Is(err, s); is != (s == sentinel) {
			t.Errorf("errors.Is(%v, %v) is %t", err, s, is)
		}
	}
	if e.Kind != kind || e.Code != code || e.Retryable() != retryable {
		t.Errorf("got kind %s, code %q, retryable %t; expected %s, %q, %t (%v)", e.Kind, e.Code, e.Retryable(), kind,
			code, retryable, err)
	}
	return e
}

// next takes the end of a response that has no more records.
func next(t *testing.T, r *responseplane.Response) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rec, err := r.Next(ctx)
	if err == nil {
		t.Fatalf("expected the end, got record %q", rec)
	}
	if again, _ := r.Next(ctx); again != nil {
		t.Fatalf("a record after the end: %q", again)
	}
	return err
}

// TestEndsOfAWorker takes every way in which a worker ends a response to the consumer.
func TestEndsOfAWorker(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		for _, c := range []struct {
			name      string
			first     bool // a record comes before the end
			end       func(w *responseplane.Writer) error
			sentinel  error // nil: complete
			code      responseplane.Code
			retryable bool
		}{
			{"complete", true, func(w *responseplane.Writer) error { return w.Complete([]byte("usage")) }, nil, 0,
				false},
			{"complete without a record", false,
				func(w *responseplane.Writer) error { return w.Complete([]byte("usage")) }, nil, 0, false},
			{"complete, put", true, func(w *responseplane.Writer) error {
				err := w.PutComplete([]byte("usage"))
				w.Flush()
				return err
			}, nil, 0, false},
			{"failed", true, func(w *responseplane.Writer) error {
				return w.Fail(responseplane.Failure{Text: "out of memory", Trailer: []byte("usage")})
			}, responseplane.ErrFailed, responseplane.CodeInternal, false},
			{"validation", false, func(w *responseplane.Writer) error {
				return w.Fail(responseplane.Failure{Code: responseplane.CodeValidation, Text: "out of memory",
					Trailer: []byte("usage")})
			}, responseplane.ErrFailed, responseplane.CodeValidation, false},
			{"not found", false, func(w *responseplane.Writer) error {
				return w.Fail(responseplane.Failure{Code: responseplane.CodeNotFound, Text: "out of memory",
					Trailer: []byte("usage")})
			}, responseplane.ErrFailed, responseplane.CodeNotFound, false},
			{"failed retryable", false, func(w *responseplane.Writer) error {
				return w.Fail(responseplane.Failure{Retryable: true, Text: "out of memory", Trailer: []byte("usage")})
			}, responseplane.ErrFailed, responseplane.CodeInternal, true},
			{"failed retryable after a record", true, func(w *responseplane.Writer) error {
				return w.Fail(responseplane.Failure{Retryable: true, Text: "out of memory", Trailer: []byte("usage")})
			}, responseplane.ErrFailed, responseplane.CodeInternal, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				res := r.mint(t, p, responseplane.MintOptions{})
				w, err := p.worker.Attach(res.Terms())
				if err != nil {
					t.Fatal(err)
				}
				records := uint64(0)
				if c.first {
					records = 1
					if err := w.Put(t.Context(), []byte("token")); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.end(w); err != nil {
					t.Fatal(err)
				}
				if c.first {
					if rec, err := res.Next(t.Context()); err != nil || string(rec) != "token" {
						t.Fatalf("got %q, %v", rec, err)
					}
				}
				err = next(t, res)
				if c.sentinel == nil {
					if err != io.EOF {
						t.Fatalf("complete is %v, expected io.EOF", err)
					}
				} else {
					e := wantEnd(t, err, c.sentinel, responseplane.EndFailed, c.code, c.retryable)
					if e.Text != "out of memory" || string(e.Trailer) != "usage" || e.Records != records ||
						e.Node != p.nodeID() || e.Plane == "" {
						t.Errorf("the error says %+v", e)
					}
				}
				if string(res.Trailer()) != "usage" {
					t.Errorf("trailer %q", res.Trailer())
				}
				if err := w.TrySend([]byte("late")); !errors.Is(err, responseplane.ErrEnded) {
					t.Errorf("a record after the worker's own end: %v, expected ErrEnded", err)
				}
			})
		}
	})
}

// TestEndsOfTheConsumer takes every way in which the frontend's side ends a response to the engine.
func TestEndsOfTheConsumer(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		t.Run("kill", func(t *testing.T) {
			res, w := r.open(t, p)
			res.Kill()
			res.Kill()
			wantEnd(t, next(t, res), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
			closed(t, "the kill at the engine", w.Done())
			wantEnd(t, w.Err(), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
			wantEnd(t, w.TryPut([]byte("x")), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
			wantEnd(t, w.Complete(nil), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
		})
		t.Run("kill before the first record", func(t *testing.T) {
			res := r.mint(t, p, responseplane.MintOptions{})
			w, err := p.worker.Attach(res.Terms())
			if err != nil {
				t.Fatal(err)
			}
			res.Kill()
			closed(t, "the kill at the engine", w.Done())
			wantEnd(t, w.Err(), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
			wantEnd(t, next(t, res), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
		})
		t.Run("kill before the request", func(t *testing.T) {
			res := r.mint(t, p, responseplane.MintOptions{})
			res.Kill()
			eventually(t, "the worker's answer to the KILL", func() bool { return r.front.Stats().ClosingSlots == 0 })
			_, err := p.worker.Attach(res.Terms())
			wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker, true)
		})
		t.Run("close", func(t *testing.T) {
			res, w := r.open(t, p)
			for range 2 {
				if err := res.Close(); err != nil {
					t.Fatal(err)
				}
			}
			closed(t, "the kill at the engine", w.Done())
			wantEnd(t, w.Err(), responseplane.ErrCanceled, responseplane.EndKilled, 0, false)
		})
		t.Run("stop", func(t *testing.T) {
			res, w := r.open(t, p)
			res.Stop()
			eventually(t, "Stopping at the engine", w.StopRequested)
			if err := w.Err(); err != nil {
				t.Fatalf("Stop alone ended the response: %v", err)
			}
			if err := w.Put(t.Context(), []byte("last")); err != nil {
				t.Fatal(err)
			}
			if err := w.Complete([]byte("usage")); err != nil {
				t.Fatal(err)
			}
			if rec, err := res.Next(t.Context()); err != nil || string(rec) != "last" {
				t.Fatalf("got %q, %v", rec, err)
			}
			if err := next(t, res); err != io.EOF || string(res.Trailer()) != "usage" {
				t.Fatalf("got %v, trailer %q", err, res.Trailer())
			}
		})
	})
}

// TestDeadlines takes the three time bounds to the consumer, and to the engine as a kill.
func TestDeadlines(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		t.Run("first record", func(t *testing.T) {
			res := r.mint(t, p, responseplane.MintOptions{FirstRecord: 20 * time.Millisecond})
			w, err := p.worker.Attach(res.Terms())
			if err != nil {
				t.Fatal(err)
			}
			wantEnd(t, next(t, res), responseplane.ErrDeadline, responseplane.EndDeadline, 0, true)
			closed(t, "the kill at the engine", w.Done())
			wantEnd(t, w.Err(), responseplane.ErrDeadline, responseplane.EndDeadline, 0, true)
		})
		t.Run("inactivity", func(t *testing.T) {
			res := r.mint(t, p, responseplane.MintOptions{Inactivity: 20 * time.Millisecond})
			w, err := p.worker.Attach(res.Terms())
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Send(t.Context(), []byte("first")); err != nil {
				t.Fatal(err)
			}
			if _, err := res.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantEnd(t, next(t, res), responseplane.ErrDeadline, responseplane.EndDeadline, 0, false)
			closed(t, "the kill at the engine", w.Done())
		})
		t.Run("whole response", func(t *testing.T) {
			res := r.mint(t, p, responseplane.MintOptions{TimeLeft: 300 * time.Millisecond})
			w, err := p.worker.Attach(res.Terms())
			if err != nil {
				t.Fatal(err)
			}
			if at, ok := w.Deadline(); !ok || time.Until(at) > 300*time.Millisecond {
				t.Errorf("the engine's deadline is %v, %t", at, ok)
			}
			wantEnd(t, next(t, res), responseplane.ErrDeadline, responseplane.EndDeadline, 0, true)
			closed(t, "the end at the engine", w.Done()) // by the KILL, or by the worker's own clock
			if err := w.Err(); !errors.Is(err, responseplane.ErrDeadline) {
				t.Errorf("the engine's end is %v", err)
			}
		})
	})
}

// TestLost: the worker process has gone, or the way to it.
func TestLost(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		for name, cut := range map[string]func(r *rig){
			"worker closed": func(r *rig) { _ = r.procs[0].worker.Close() },
			// as a process that died: no GOAWAY, nobody listens
			"transport closed": func(r *rig) { _ = r.procs[0].evil.Close() },
			"network cut":      func(r *rig) { r.gate.cut() },
			"peer removed":     func(r *rig) { r.front.RemovePeer(r.procs[0].nodeID()) },
		} {
			t.Run(name, func(t *testing.T) {
				r := newRig(t, net,
					rigConfig{worker: func(c *responseplane.WorkerConfig) {
						c.IdleTimeout,
							c.KeepAliveInterval = 2*time.Second, time.Second
					}})
				p := r.procs[0]
				res, _ := r.open(t, p)
				silent := r.mint(t, p, responseplane.MintOptions{})
				cut(r)
				wantEnd(t, next(t, res), responseplane.ErrLost, responseplane.EndLost, 0, false)
				wantEnd(t, next(t, silent), responseplane.ErrLost, responseplane.EndLost, 0, true)
				_, err := r.front.Mint(t.Context(), p.nodeID(), responseplane.MintOptions{})
				wantEnd(t, err, responseplane.ErrUnavailable, responseplane.EndRefused, responseplane.CodeNoWorker,
					true)
				_ = p.worker.Close() // where the worker lives on it holds the stream for 15 s; that is the mux's test
			})
		}
		t.Run("frontend closed", func(t *testing.T) {
			r := newRig(t, net, rigConfig{})
			res, w := r.open(t, r.procs[0])
			_ = r.front.Close()
			wantEnd(t, next(t, res), responseplane.ErrLost, responseplane.EndLost, 0, false)
			_, err := r.front.Mint(t.Context(), r.procs[0].nodeID(), responseplane.MintOptions{})
			if !errors.Is(err, responseplane.ErrClosed) {
				t.Errorf("Mint after Close: %v", err)
			}
			_ = r.procs[0].worker.Close()
			closed(t, "the engine's end", w.Done())
			wantEnd(t, w.Err(), responseplane.ErrLost, responseplane.EndLost, 0, false)
		})
	})
}

// TestProtocol: a worker that sends what is no record ends its lane, and the lane's responses with it.
func TestProtocol(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{})
		p := r.procs[0]
		res, w := r.open(t, p)
		p.evil.armed.Store(true)
		if err := w.Send(t.Context(), []byte("second")); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, next(t, res), responseplane.ErrProtocol, responseplane.EndProtocol, 0, false)
		p.evil.armed.Store(false)
		closed(t, "the kill at the engine", w.Done())
		r.reachable(t, 1)
		res, w = r.open(t, p) // the link has a new lane
		if err := w.Complete(nil); err != nil {
			t.Fatal(err)
		}
		if err := next(t, res); err != io.EOF {
			t.Fatal(err)
		}
	})
}
