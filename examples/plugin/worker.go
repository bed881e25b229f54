package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// workerServer is a worker process: an engine behind an HTTP server. Its responses go back over the plane.
type workerServer struct {
	plane *responseplane.Worker
	pace  time.Duration // between two passes of the engine

	mu      sync.Mutex
	running []*sequence
	engine  sync.WaitGroup
	stop    chan struct{}
}

// sequence is one running response: a word of the prompt is a token.
type sequence struct {
	w    *responseplane.Writer
	left []string
}

func newWorkerServer(plane *responseplane.Worker, pace time.Duration) *workerServer {
	s := &workerServer{plane: plane, pace: pace, stop: make(chan struct{})}
	s.engine.Add(1)
	go s.run()
	return s
}

// Close ends the engine; what runs is failed, so that no caller waits for it.
func (s *workerServer) Close() {
	close(s.stop)
	s.engine.Wait()
}

func (s *workerServer) handler() http.Handler {
	m := http.NewServeMux()
	// A frontend reads here how to reach this process; any other way to carry this JSON does as well.
	m.HandleFunc("GET /plane", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.plane.Descriptor())
	})
	m.HandleFunc("POST /generate", s.generate)
	return m
}

// generate takes a request. It answers as soon as the engine has it: no token ever goes this way.
func (s *workerServer) generate(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&req); err != nil {
		answer(w, http.StatusBadRequest, refusal{fmt.Sprintf("the body is no request: %v", err)})
		return
	}
	out, err := s.writer(r.Context(), req)
	if err != nil {
		answer(w, statusOf(err), refusal{err.Error()})
		return
	}
	s.mu.Lock()
	s.running = append(s.running, &sequence{w: out, left: strings.Fields(req.Prompt)})
	s.mu.Unlock()
	w.WriteHeader(http.StatusAccepted)
}

// writer turns a request's terms into the response's Writer.
func (s *workerServer) writer(ctx context.Context, req request) (*responseplane.Writer, error) {
	if req.Open {
		return s.plane.Claim(ctx, req.Terms) // one round trip, while an engine would prefill
	}
	return s.plane.Attach(req.Terms) // none
}

// statusOf says whether another worker is worth a try.
func statusOf(err error) int {
	var e *responseplane.Error
	if errors.As(err, &e) && e.Retryable() {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// run is the engine: each pass makes one token for every running response, then one Flush writes them all.
func (s *workerServer) run() {
	defer s.engine.Done()
	passes := time.NewTicker(s.pace)
	defer passes.Stop()
	for {
		select {
		case <-passes.C:
			s.pass()
		case <-s.stop:
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, q := range s.running {
				_ = q.w.Fail(responseplane.Failure{Text: "the worker shuts down", Retryable: true})
			}
			return
		}
	}
}

func (s *workerServer) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.running[:0]
	for _, q := range s.running {
		if q.step() {
			kept = append(kept, q)
		}
	}
	clear(s.running[len(kept):])
	s.running = kept
	s.plane.Flush()
}

// step makes one token. False: the sequence has ended.
func (q *sequence) step() bool {
	if q.w.Err() != nil {
		return false // killed or lost: nobody listens any more
	}
	if len(q.left) == 0 || q.w.StopRequested() {
		_ = q.w.PutComplete([]byte(`{"finish_reason":"stop"}`))
		return false
	}
	err := q.w.TryPut([]byte(q.left[0] + " "))
	switch {
	case errors.Is(err, responseplane.ErrWindowFull):
		return true // a slow consumer holds up itself only; this token is tried again in the next pass
	case err != nil:
		return false
	}
	q.left = q.left[1:]
	return true
}
