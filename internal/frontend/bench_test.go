package frontend

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// endless is a stream that always has a batch ready, n times.
type endless struct {
	*play
	batch [][]byte
	left  int
}

func (e *endless) NextBatch(context.Context) ([][]byte, error) {
	if e.left <= 0 {
		return nil, io.EOF
	}
	e.left -= len(e.batch)
	return e.batch, nil
}

// discard is a ResponseWriter that takes everything.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
func (d discard) FlushError() error           { return nil }

// BenchmarkEvents is what one event costs between the plane and net/http.
func BenchmarkEvents(b *testing.B) {
	for _, c := range []struct {
		name  string
		batch int
	}{{"batch=1", 1}, {"batch=16", 16}} {
		b.Run(c.name, func(b *testing.B) {
			e := &endless{play: newPlay(), left: b.N}
			for range c.batch {
				e.batch = append(e.batch, []byte(" token"))
			}
			s, err := New(Config{Backend: &scripted{models: []string{"m"}, open: func(context.Context, Call) (Stream,
				error) {
				return e, nil
			}}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(chatStream))
			b.ReportAllocs()
			b.ResetTimer()
			s.ServeHTTP(discard{http.Header{}}, r)
		})
	}
}

// BenchmarkResponse is what a response of 256 events, one at a time, costs in all, without its connection.
func BenchmarkResponse(b *testing.B) {
	e := &endless{play: newPlay(), batch: [][]byte{[]byte(" token")}}
	s, err := New(Config{Backend: &scripted{models: []string{"m"}, open: func(context.Context, Call) (Stream,
		error) {
		e.left = 256
		return e, nil
	}}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	body := `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"` + strings.Repeat(" abcde", 1024) + `"}]}`
	b.ReportAllocs()
	for b.Loop() {
		s.ServeHTTP(discard{http.Header{}}, httptest.NewRequest("POST", "/v1/chat/completions",
			strings.NewReader(body)))
	}
}

// TestEventsDoNotAllocate holds that 1,000 more events cost no more allocations than one.
func TestEventsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	e := &endless{play: newPlay(), batch: [][]byte{[]byte(" token")}}
	events := 1
	s, err := New(Config{Backend: &scripted{models: []string{"m"}, open: func(context.Context, Call) (Stream,
		error) {
		e.left = events
		return e, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(n int) float64 {
		events = n
		return testing.AllocsPerRun(50, func() {
			s.ServeHTTP(discard{http.Header{}}, httptest.NewRequest("POST", "/v1/chat/completions",
				strings.NewReader(chatStream)))
		})
	}
	one, many := run(1), run(1001)
	if many-one > 20 { // buffers that a garbage collection took out of their pool
		t.Errorf("one event: %v allocations, 1001 events: %v", one, many)
	}
}
