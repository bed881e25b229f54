//go:build linux

package endtoend

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// soak is clients of every kind.
type soak struct {
	t      *testing.T
	f      *frontend
	fronts []*frontend // f, by HTTP/1.1 and by HTTP/2
	seed   uint64

	mu   sync.Mutex
	seen map[string]int // complete, left, stalled, cut, or an error's code
}

func newSoak(t *testing.T, f *frontend) *soak {
	h1, h2 := *f, f.http2()
	world := *f.w
	world.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}
	h1.w = &world
	s := &soak{t: t, f: f, fronts: []*frontend{&h1, h2}, seed: rand.Uint64(), seen: make(map[string]int)}
	t.Logf("seed %d", s.seed)
	t.Cleanup(func() {
		for _, c := range s.fronts {
			c.w.client.CloseIdleConnections()
		}
	})
	return s
}

func (s *soak) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[what]++
}

// run has so many clients make one request after the other for a while.
func (s *soak) run(clients int, d time.Duration) {
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(s.seed, uint64(i)))
			for time.Now().Before(end) {
				s.one(random)
			}
		})
	}
	all.Wait()
}

// one is a request of a random kind.
func (s *soak) one(r *rand.Rand) {
	f := s.fronts[r.IntN(len(s.fronts))]
	switch k := r.IntN(100); {
	case k < 58:
		o := f.ask(context.Background(), 1+r.IntN(200), nil)
		switch {
		case o.whole:
			s.note("complete")
		case o.typed():
			s.note(o.code)
		case o.broken != nil:
			s.cut(o)
		default:
			s.t.Error(o)
		}
	case k < 68:
		s.unary(f, "mock", 1+r.IntN(100))
	case k < 82:
		s.leave(f, r.IntN(60), 0)
	case k < 90:
		s.leave(f, -1, time.Duration(r.IntN(30))*time.Millisecond)
	case k < 93:
		s.slow(50 + r.IntN(100))
	case k < 95:
		s.stalled()
	case k < 97:
		s.unary(f, "other", 1)
	default:
		s.unary(f, "mock", -1)
	}
}

func request(model string, tokens int, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a b"}],"max_tokens":%d,"stream":%t}`, model,
		tokens, stream)
}

func (s *soak) unary(f *frontend, model string, tokens int) {
	resp, err := f.w.client.Post(f.http+"/v1/chat/completions", "application/json",
		strings.NewReader(request(model, tokens, false)))
	if err != nil {
		s.cut(err)
		return
	}
	defer resp.Body.Close()
	var reply struct {
		Error *struct{ Code string }
		Usage struct {
			Completion int `json:"completion_tokens"`
		}
	}
	err = json.NewDecoder(resp.Body).Decode(&reply)
	switch {
	case err != nil:
		s.cut(err)
	case reply.Error == nil && resp.StatusCode == http.StatusOK && reply.Usage.Completion == tokens:
		s.note("complete")
	case reply.Error != nil && resp.StatusCode >= 400:
		code := reply.Error.Code
		switch code { // finer than the metrics' label
		case "model_not_found":
			code = "not_found"
		case "invalid_value":
			code = "validation"
		}
		s.note(code)
	default:
		s.t.Errorf("%s: %+v", resp.Status, reply)
	}
}

// leave leaves after so many lines, or, when they are negative, after so long.
func (s *soak) leave(f *frontend, lines int, after time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if lines < 0 {
		defer time.AfterFunc(after, cancel).Stop()
	}
	s.note("left")
	r, err := http.NewRequestWithContext(ctx, "POST", f.http+"/v1/chat/completions",
		strings.NewReader(request("mock", 400, true)))
	if err != nil {
		s.t.Error(err)
		return
	}
	resp, err := f.w.client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			s.cut(err)
		}
		return
	}
	defer resp.Body.Close()
	if lines < 0 {
		_, _ = io.Copy(io.Discard, resp.Body)
		return
	}
	p := make([]byte, 1)
	for lines > 0 {
		if _, err := resp.Body.Read(p); err != nil {
			return // it ended before
		}
		if p[0] == '\n' {
			lines--
		}
	}
}

// raw opens a connection of its own with a small receive buffer and sends a request for large tokens.
func (s *soak) raw(id string, tokens int) net.Conn {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.f.http, "http://"))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	_ = c.(*net.TCPConn).SetReadBuffer(8 << 10)
	body := request("big", tokens, true)
	if _, err := fmt.Fprintf(c,
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nConnection: close\r\nContent-Length: "+
			"%d\r\n\r\n%s", id, len(body), body); err != nil {
		s.t.Error(err)
	}
	return c
}

// slow reads everything, at its own pace.
func (s *soak) slow(tokens int) {
	c := s.raw(fmt.Sprintf("slow-%d", serial.Add(1)), tokens)
	if c == nil {
		return
	}
	defer c.Close()
	var all bytes.Buffer
	p := make([]byte, 16<<10)
	for {
		n, err := c.Read(p)
		all.Write(p[:n])
		if err != nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	switch text := all.Bytes(); {
	case bytes.Contains(text, []byte("data: [DONE]\n\n")) && !bytes.Contains(text, []byte(`"error":`)) &&
		bytes.Contains(text, []byte(`"finish_reason":"length"`)):
		s.note("complete")
	default:
		s.cut(fmt.Sprintf("a slow client got %d bytes, the last: %q", len(text), text[max(0, len(text)-300):]))
	}
}

// stalled reads a little and then nothing, until the frontend has had enough of it.
func (s *soak) stalled() {
	id := fmt.Sprintf("stalled-%d", serial.Add(1))
	c := s.raw(id, 1<<20)
	if c == nil {
		return
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, 2048)); err != nil {
		s.t.Errorf("a client that stalls later: %v", err)
		return
	}
	for end := time.Now().Add(patience); s.f.state(id) != "ended"; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Error("a client that reads nothing is not cut")
			return
		}
	}
	s.note("stalled")
}

// state is what the frontend says of a request that it had; empty where it cannot be asked.
func (f *frontend) state(id string) string {
	resp, err := f.w.client.Get(f.admin + "/debug/plane/streams/" + id)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound { // it ended too long ago, or too many have since
		return "ended"
	}
	var v struct{ State string }
	_ = json.NewDecoder(resp.Body).Decode(&v)
	return v.State
}

// cut is a client that did not get what was sent to it before the write timeout, though it would have read it: this
// process did not come to it. It is no fault of the frontend's, which must count it as slow.
func (s *soak) cut(err any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen["cut"]++; s.seen["cut"] <= 3 {
		s.t.Logf("cut: %v", err)
	}
}
