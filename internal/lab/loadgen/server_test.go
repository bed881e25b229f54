package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
)

// call is one request as the scripted server sees it.
type call struct {
	n    int // from 0, in order of arrival
	id   string
	osl  int
	w    http.ResponseWriter
	r    *http.Request
	body map[string]any
}

// stamps are the server's own times of one response: the truth that rows are held to.
type stamps struct{ got, first, last time.Time }

// server is a scripted OpenAI-compatible server.
type server struct {
	*httptest.Server
	script func(s *server, c *call)
	n      atomic.Int64
	open   atomic.Int64
	most   atomic.Int64

	mu    sync.Mutex
	truth map[string]*stamps
	ids   []string
}

func newServer(t *testing.T, script func(s *server, c *call)) *server {
	t.Helper()
	s := &server{script: script, truth: map[string]*stamps{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"mock-model"}]}`)
		return
	}
	got := time.Now()
	b, err := io.ReadAll(r.Body)
	c := &call{n: int(s.n.Add(1)) - 1, id: r.Header.Get("X-Request-Id"), w: w, r: r}
	if err != nil || json.Unmarshal(b, &c.body) != nil {
		http.Error(w, "bad body", 400)
		return
	}
	for _, limit := range []string{"max_tokens", "max_output_tokens"} {
		if n, ok := c.body[limit].(float64); ok {
			c.osl = int(n)
		}
	}
	for now := s.open.Add(1); ; {
		most := s.most.Load()
		if now <= most || s.most.CompareAndSwap(most, now) {
			break
		}
	}
	defer s.open.Add(-1)
	s.mu.Lock()
	s.truth[c.id] = &stamps{got: got}
	s.ids = append(s.ids, c.id)
	s.mu.Unlock()
	s.script(s, c)
}

func (s *server) stamp(id string, f func(*stamps)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.truth[id])
}

// sse begins an event stream of a Laneway worker.
func (c *call) sse(worker string) {
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	if worker != "" {
		h.Set("X-Laneway-Worker", worker)
		h.Set("X-Laneway-Process", "p-"+worker)
		h.Set("X-Laneway-Lane", "quic/0")
	}
	c.w.WriteHeader(200)
	c.data(`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`)
}

func (c *call) data(s string) {
	fmt.Fprintf(c.w, "data: %s\n\n", s)
	c.w.(http.Flusher).Flush()
}

func (c *call) text(s string) {
	q, _ := json.Marshal(s)
	c.data(`{"id":"x","choices":[{"index":0,"delta":{"content":` + string(q) + `},"finish_reason":null}]}`)
}

// tokens sends the tokens with these indices as one chunk.
func (c *call) tokens(idx ...int) {
	var b []byte
	g := tokentext.New(c.id)
	for _, i := range idx {
		b = g.Append(b, i)
	}
	c.text(string(b))
}

func (c *call) finish(usage int) {
	c.data(`{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)
	c.data(`{"id":"x","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":` + strconv.Itoa(usage) +
		`,"total_tokens":1}}`)
	c.data("[DONE]")
}

// normal answers with all tokens, one a chunk, with a delay before the first and between them.
func normal(ttft, itl time.Duration) func(s *server, c *call) {
	return func(s *server, c *call) {
		c.sse("w" + strconv.Itoa(c.n%2))
		time.Sleep(ttft)
		for i := range c.osl {
			if i > 0 && itl > 0 {
				time.Sleep(itl)
			}
			now := time.Now()
			s.stamp(c.id, func(st *stamps) {
				if i == 0 {
					st.first = now
				}
				st.last = now
			})
			c.tokens(i)
		}
		c.finish(c.osl)
	}
}

// needClient skips, and says so, where io_uring is not allowed; where everything must be there it fails.
func needClient(t testing.TB, kind string) {
	t.Helper()
	if kind != ClientRing {
		return
	}
	if err := probeRing(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the io_uring client: %v", err)
		}
		t.Skipf("the io_uring client is not tested here: %v", err)
	}
}

// clients runs a test with each client that this system has.
func clients(t *testing.T, f func(t *testing.T, client string)) {
	kinds := []string{ClientGoroutines}
	if haveLoops {
		kinds = append(kinds, ClientEpoll, ClientRing)
	}
	for _, k := range kinds {
		t.Run(k, func(t *testing.T) {
			needClient(t, k)
			f(t, k)
		})
	}
}

func sleepMS(n int) { time.Sleep(time.Duration(n) * time.Millisecond) }
