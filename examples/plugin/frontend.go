package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// target is a worker as the frontend's own router knows it.
type target struct {
	url  string
	node responseplane.NodeID
}

// frontendServer is an inference frontend with a router and a request path of its own.
type frontendServer struct {
	plane   *responseplane.Frontend
	client  *http.Client
	targets []target
	next    atomic.Uint64 // round robin
	open    bool          // send requests with open terms
}

// askAgain is the pause before a worker that does not answer is asked again.
const askAgain = 200 * time.Millisecond

// discover asks each worker for its descriptor and waits until a lane to it is up. Workers may still be starting: one
// that does not answer is asked again until ctx ends.
func (s *frontendServer) discover(ctx context.Context, urls []string) error {
	for _, url := range urls {
		d, err := s.describeUntil(ctx, url)
		if err != nil {
			return fmt.Errorf("worker %s: %w", url, err)
		}
		node, err := s.plane.AddPeer(d)
		if err != nil {
			return fmt.Errorf("worker %s: %w", url, err)
		}
		if err := s.plane.AwaitPeer(ctx, node); err != nil {
			return fmt.Errorf("worker %s: no lane: %w", url, err)
		}
		s.targets = append(s.targets, target{url: url, node: node})
	}
	return nil
}

// describeUntil returns the last failure when ctx ends: it says more than the end of ctx.
func (s *frontendServer) describeUntil(ctx context.Context, url string) (responseplane.Descriptor, error) {
	pause := time.NewTicker(askAgain)
	defer pause.Stop()
	var last error
	for {
		d, err := s.describe(ctx, url)
		if err == nil {
			return d, nil
		}
		if ctx.Err() == nil || last == nil {
			if last == nil {
				slog.Warn("a worker does not answer yet, asking again", "worker", url, "error", err)
			}
			last = err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return d, last
		}
	}
}

// describe asks a worker once.
func (s *frontendServer) describe(ctx context.Context, url string) (d responseplane.Descriptor, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/plane", nil)
	if err != nil {
		return d, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return d, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return d, fmt.Errorf("/plane answered %s", resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&d); err != nil {
		return d, fmt.Errorf("/plane is no descriptor: %w", err)
	}
	return d, nil
}

func (s *frontendServer) handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("POST /generate", s.generate)
	return m
}

// generate serves one client. Until the first token any failure can still go to another worker.
func (s *frontendServer) generate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt string `json:"prompt"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		http.Error(w, fmt.Sprintf("the body is not {\"prompt\": \"...\"}: %v", err), http.StatusBadRequest)
		return
	}
	var err error
	for range s.targets {
		to := s.targets[s.next.Add(1)%uint64(len(s.targets))]
		var resp *responseplane.Response
		if s.open {
			resp, err = s.startOpen(r.Context(), to, in.Prompt)
		} else {
			resp, err = s.start(r.Context(), to, in.Prompt)
		}
		if err == nil {
			defer resp.Close() // kills it if the client has left
			s.stream(w, r, resp)
			return
		}
	}
	http.Error(w, fmt.Sprintf("no worker took the request: %v", err), http.StatusServiceUnavailable)
}

var bounds = responseplane.MintOptions{FirstRecord: 30 * time.Second, Inactivity: 30 * time.Second}

// start mints a response from the worker that the router chose, and posts the request with its terms.
func (s *frontendServer) start(ctx context.Context, to target, prompt string) (*responseplane.Response, error) {
	resp, err := s.plane.Mint(ctx, to.node, bounds)
	if err != nil {
		return nil, err // busy, draining, no link
	}
	if err := s.post(ctx, to, request{Prompt: prompt, Terms: resp.Terms()}); err != nil {
		resp.Close() // the worker may have it after all: Close tells it to stop
		return nil, err
	}
	return resp, nil
}

// startOpen sends the request without saying to the plane who will run it.
func (s *frontendServer) startOpen(ctx context.Context, to target, prompt string) (*responseplane.Response, error) {
	pending, err := s.plane.MintOpen(bounds)
	if err != nil {
		return nil, err
	}
	if err := s.post(ctx, to, request{Prompt: prompt, Terms: pending.Terms(), Open: true}); err != nil {
		pending.Close()
		return nil, err
	}
	resp, err := pending.Wait(ctx)
	if err != nil {
		pending.Close()
		return nil, err
	}
	return resp, nil
}

// post is the request path that was there before Laneway.
func (s *frontendServer) post(ctx context.Context, to target, body request) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url+"/generate", bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusAccepted {
		return nil
	}
	var no refusal
	_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&no)
	return fmt.Errorf("worker %s answered %s: %s", to.url, resp.Status, no.Error)
}

// stream writes the tokens as server-sent events. A response that did not complete never looks complete: its last event
// is an error.
func (s *frontendServer) stream(w http.ResponseWriter, r *http.Request, resp *responseplane.Response) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for {
		batch, err := resp.NextBatch(r.Context()) // all that is ready: one wake and one write for it
		for _, token := range batch {
			fmt.Fprintf(w, "data: %s\n\n", token)
		}
		var failed *responseplane.Error
		switch {
		case err == io.EOF:
			fmt.Fprintf(w, "event: done\ndata: %s\n\n", resp.Trailer())
			return
		case errors.As(err, &failed):
			fmt.Fprintf(w, "event: error\ndata: %s\n\n", failed)
			return
		case err != nil:
			return // the client has left
		}
		if out.Flush() != nil {
			return
		}
	}
}
