package frontend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEveryRequestIsCountedOnce has many requests of every kind at once: those that started are those that are
// complete, failed with a type, or cancelled, and the gauges are back at zero.
func TestEveryRequestIsCountedOnce(t *testing.T) {
	const each = 25
	ends := map[string]*EndError{
		"internal": {End: EndFailed, Code: CodeInternal}, "validation": {End: EndFailed, Code: CodeValidation},
		"not_found": {End: EndFailed, Code: CodeNotFound},
		"overload":  {End: EndRefused, Code: CodeBusy}, "unavailable": {End: EndRefused, Code: CodeNoWorker},
		"timeout": {End: EndDeadline},
		"lost":    {End: EndLost}, "protocol": {End: EndProtocol},
	}
	b := serve(t, &scripted{}, func(c *Config) { c.KeepAlive = 2 * time.Millisecond })
	b.client.Timeout = 0
	var leave sync.Map // id -> what has its client leave
	b.backend.open = func(ctx context.Context, c Call) (Stream, error) {
		kind, _, _ := strings.Cut(c.ClientID, ":")
		if cancel, ok := leave.Load(c.ClientID); ok {
			cancel.(context.CancelFunc)()
		}
		when, label, _ := strings.Cut(kind, "-")
		switch when {
		case "early":
			return nil, ends[label]
		case "late":
			return newPlay(step{recs: []string{"a"}}, step{err: ends[label]}).stream(), nil
		case "waits":
			<-ctx.Done()
			return nil, ctx.Err()
		case "leaves":
			return newPlay(step{recs: []string{"a"}}).stream(), nil
		}
		return newPlay(step{recs: []string{"a", "b"}}, step{err: io.EOF}).stream(), nil
	}
	want := map[string]int{}
	var n atomic.Int64
	var clients sync.WaitGroup
	ask := func(kind, label, body string) {
		want[label] += each
		for range each {
			id := fmt.Sprintf("%s:%d", kind, n.Add(1))
			clients.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if label == "cancelled" {
					leave.Store(id, cancel)
				}
				r, err := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Request-Id", id)
				if resp, err := b.client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				} else if label != "cancelled" {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
	}
	for _, body := range []string{chatBody, chatStream} {
		ask("complete", "", body)
		for label := range ends {
			ask("early-"+label, label, body)
			ask("late-"+label, label, body)
		}
		// They leave when their request has come to the backend.
		ask("waits", "cancelled", body)
		ask("leaves", "cancelled", body)
	}
	ask("bad", "validation", `{"model":`)
	ask("bad", "not_found", strings.Replace(chatBody, `"m"`, `"other"`, 1))
	clients.Wait()
	b.untilOpen(0)
	total := 0.0
	for label, k := range want {
		b.untilValue(float64(k), requests, "error_type", label)
		total += float64(k)
	}
	b.untilValue(total, "laneway_frontend_requests_started_total")
	b.untilValue(total, requests)
	b.untilValue(float64(want["cancelled"]), "laneway_frontend_disconnected_clients_total")
	b.untilValue(0, "laneway_frontend_inflight_requests")
	// Every request with a model that is served has one duration.
	b.untilValue(total-2*each, "laneway_frontend_request_duration_seconds")
}

// TestFinestBuckets holds that latencies of about a millisecond can be told apart.
func TestFinestBuckets(t *testing.T) {
	below := 0
	for _, le := range itlBuckets {
		if le <= 0.002 {
			below++
		}
	}
	if below < 5 {
		t.Errorf("%d buckets of inter-token latency are up to 2 ms: %v", below, itlBuckets)
	}
}

// TestCancelStormOfThousands has thousands of streams of a few HTTP/2 connections reset within a moment, half of them
// before their first record: each ends its worker's work, is counted once, and a request after them is served as ever.
func TestCancelStormOfThousands(t *testing.T) {
	n := 3000
	if raceEnabled {
		n = 600
	}
	var mu sync.Mutex
	var plays []*play
	var waiting sync.WaitGroup
	waiting.Add(n)
	b := serveProtocol(t, &scripted{}, "h2c", func(c *Config) { c.KeepAlive = 50 * time.Millisecond })
	b.backend.open = func(ctx context.Context, c Call) (Stream, error) {
		switch c.ClientID {
		case "early":
			waiting.Done()
			<-ctx.Done()
			return nil, ctx.Err()
		case "late":
			p := newPlay(step{recs: []string{"a"}})
			mu.Lock()
			plays = append(plays, p)
			mu.Unlock()
			return p.stream(), nil
		}
		return newPlay(step{recs: []string{"a"}}, step{err: io.EOF}).stream(), nil
	}
	storm, leave := context.WithCancel(context.Background())
	defer leave()
	b.client.Timeout = 0
	var clients sync.WaitGroup
	for i := range n {
		id := []string{"early", "late"}[i%2]
		clients.Go(func() {
			r, err := http.NewRequestWithContext(storm, "POST", b.url+"/v1/chat/completions",
				strings.NewReader(chatStream))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("X-Request-Id", id)
			resp, err := b.client.Do(r)
			if err != nil {
				if storm.Err() == nil {
					t.Error(err)
				}
				return
			}
			defer resp.Body.Close()
			if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil && storm.Err() == nil {
				t.Error(err)
			}
			if id == "late" { // the early ones may have a comment here, and have been counted
				waiting.Done()
			}
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // they do not all leave from the same line
			<-storm.Done()
		})
	}
	waiting.Wait()
	leave()
	clients.Wait()
	for _, p := range plays {
		p.waitFor(t, "killed", p.killed)
		p.waitFor(t, "closed", p.shut)
	}
	b.untilOpen(0)
	b.untilValue(float64(n), "laneway_frontend_disconnected_clients_total")
	b.untilValue(float64(n), requests, "status", "499")
	b.untilValue(float64(n), requests)
	if a := b.do("POST", "/v1/chat/completions", chatStream); a.status != 200 ||
		!strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("after the storm: %d %s", a.status, a.body)
	}
}
