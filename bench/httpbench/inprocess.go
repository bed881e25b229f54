package httpbench

import (
	"context"
	"io"

	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/responseplane"
)

// inProcess is a backend whose engines are in the frontend's process: what is left is the HTTP side and its out path,
// written by the engines' goroutines.
type inProcess struct {
	engines *engines
	passes  []pass // by engine
}

func newInProcess(cfg childConfig) (*inProcess, error) {
	b := &inProcess{passes: make([]pass, cfg.engines())}
	var err error
	b.engines, err = newEngines(cfg, func(i int) { b.passes[i].finish() })
	return b, err
}

func (b *inProcess) Models() []string { return []string{model} }
func (b *inProcess) Ready() error     { return nil }

// Open implements frontend.Backend.
func (b *inProcess) Open(ctx context.Context, c frontend.Call) (frontend.Stream, error) {
	var s *pushed
	err := b.engines.submit(c.Payload, func(engine int) mock.Writer {
		s = newPushed(origin{worker: workerID(0), plane: InProcess}, &b.passes[engine])
		return &pushWriter{s: s}
	})
	if err != nil {
		return nil, &frontend.EndError{End: frontend.EndRefused, Code: frontend.CodeBadRequest, Text: err.Error(),
			Worker: workerID(0), Err: err}
	}
	if err := s.first(ctx); err != nil {
		_ = s.Close() // only gives it up
		return nil, err
	}
	return s, nil
}

func (b *inProcess) planes() map[string]uint64 { return nil }

func (b *inProcess) Close() error { return b.engines.close() }

// pushWriter has an engine write into a stream. Its goroutine is the only one that does.
type pushWriter struct {
	s   *pushed
	one [1][]byte
}

func (w *pushWriter) TryPut(rec []byte) error {
	w.one[0] = rec
	w.s.take(w.one[:], nil)
	return nil
}

// OnWritable never has anything to say: TryPut always has room.
func (w *pushWriter) OnWritable(func()) {}

func (w *pushWriter) Err() error {
	if w.s.gone() {
		return errKilled
	}
	return nil
}

func (w *pushWriter) StopRequested() bool { return false }

func (w *pushWriter) PutComplete(trailer []byte) error {
	w.s.complete(trailer, io.EOF)
	return nil
}

func (w *pushWriter) Fail(f responseplane.Failure) error {
	w.s.take(nil, &frontend.EndError{End: frontend.EndFailed, Code: frontend.CodeInternal, Text: f.Text,
		Worker: w.s.worker})
	return nil
}
