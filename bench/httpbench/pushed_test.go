package httpbench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/laneway-ai/laneway/internal/frontend"
)

// TestPushed: what a sink does not take is NextBatch's, with all that comes after it, until NextBatch finds nothing;
// then the sink has the stream again.
func TestPushed(t *testing.T) {
	var p pass
	s := newPushed(origin{worker: "w", plane: "x"}, &p)
	put := func(text string) { s.take([][]byte{[]byte(text)}, nil) }
	next := func(want string, end error) {
		t.Helper()
		recs, err := s.NextBatch(t.Context())
		if got := string(bytes.Join(recs, []byte(","))); got != want || err != end {
			t.Errorf("NextBatch gives %q, %v; expected %q, %v", got, err, want, end)
		}
	}
	put("a")
	if err := s.first(t.Context()); err != nil {
		t.Fatal(err)
	}
	sunk, takes := "", true
	s.OnPass(func(in frontend.Pass, recs [][]byte, end error) bool {
		if in != frontend.Pass(&p) {
			t.Error("the sink is told of another pass")
		}
		if !takes || end != nil {
			return false
		}
		sunk += string(bytes.Join(recs, nil))
		return true
	})
	put("b") // before NextBatch has found nothing the sink gets nothing
	next("a,b", nil)
	next("", nil)
	put("c")
	takes = false
	put("d")
	takes = true
	put("e")
	next("d,e", nil)
	put("f")
	next("f", nil)
	next("", nil)
	put("g")
	s.complete([]byte("trailer"), io.EOF)
	put("late")
	next("", io.EOF)
	if sunk != "cg" || string(s.Trailer()) != "trailer" {
		t.Errorf("the sink took %q, trailer %q", sunk, s.Trailer())
	}
}

// TestPushedEnds: a way that fails is lost, who waits learns of a kill, and a stream is given back once.
func TestPushedEnds(t *testing.T) {
	back := 0
	s := newPushed(origin{worker: "w"}, &pass{})
	s.ended = func() { back++ }
	s.take(nil, errors.New("broken"))
	_, err := s.NextBatch(t.Context())
	if e, ok := errors.AsType[*frontend.EndError](err); !ok || e.End != frontend.EndLost || e.Worker != "w" {
		t.Errorf("a way that failed: %v", err)
	}
	s.Close()
	s.Close()
	if back != 1 {
		t.Errorf("given back %d times", back)
	}

	s = newPushed(origin{}, &pass{})
	waits := make(chan error, 1)
	go func() { // joined by the receive below
		_, err := s.NextBatch(context.Background())
		waits <- err
	}()
	s.Kill()
	if err := <-waits; err != errKilled || !s.gone() {
		t.Errorf("killed: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newPushed(origin{}, &pass{}).first(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the client has left: %v", err)
	}
}

// TestPass: what is deferred runs once, at the end of its pass.
func TestPass(t *testing.T) {
	var p pass
	ran := 0
	p.finish()
	p.Defer("batch", func() { ran++ })
	if p.Value() != "batch" || ran != 0 {
		t.Error("the pass has no value, or has run too early")
	}
	p.finish()
	p.finish()
	if p.Value() != nil || ran != 1 {
		t.Errorf("value %v, ran %d times", p.Value(), ran)
	}
}
