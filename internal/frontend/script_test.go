package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(benchClient); addr != "" {
		runClients(addr)
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 10 * time.Second

// scripted is a backend whose responses a test plays by hand.
type scripted struct {
	models []string
	ready  error
	open   func(ctx context.Context, c Call) (Stream, error)

	mu    sync.Mutex
	calls []Call
}

func (b *scripted) Models() []string { return b.models }
func (b *scripted) Ready() error     { return b.ready }
func (b *scripted) Open(ctx context.Context, c Call) (Stream, error) {
	b.mu.Lock()
	b.calls = append(b.calls, c)
	b.mu.Unlock()
	return b.open(ctx, c)
}

func (b *scripted) lastCall() Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[len(b.calls)-1]
}

// play is one scripted response: each step is what one NextBatch returns.
type play struct {
	steps                 chan step
	trailer               string
	killed, stopped, shut chan struct{}
	onceK, onceS, onceC   sync.Once
	retries               int
	given                 atomic.Int64 // records
}

type step struct {
	recs []string
	err  error
}

func newPlay(steps ...step) *play {
	p := &play{steps: make(chan step, max(len(steps), 16)), killed: make(chan struct{}), stopped: make(chan struct{}),
		shut:    make(chan struct{}),
		trailer: `{"finish_reason":"length","prompt_tokens":3,"completion_tokens":%d}`}
	for _, s := range steps {
		p.steps <- s
	}
	return p
}

func (p *play) NextBatch(ctx context.Context) ([][]byte, error) {
	select { // what is ready goes first
	case s := <-p.steps:
		return p.give(s)
	default:
	}
	select {
	case s := <-p.steps:
		return p.give(s)
	case <-p.killed:
		return nil, &EndError{End: EndKilled}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *play) give(s step) ([][]byte, error) {
	p.given.Add(int64(len(s.recs)))
	return s.bytes()
}

func (s step) bytes() ([][]byte, error) {
	var out [][]byte
	for _, r := range s.recs {
		out = append(out, []byte(r))
	}
	return out, s.err
}

func (p *play) Trailer() []byte {
	return []byte(strings.Replace(p.trailer, "%d", fmt.Sprint(p.given.Load()), 1))
}
func (p *play) Stop()            { p.onceS.Do(func() { close(p.stopped) }) }
func (p *play) Kill()            { p.onceK.Do(func() { close(p.killed) }) }
func (p *play) Close() error     { p.onceC.Do(func() { close(p.shut) }); return nil }
func (p *play) Worker() string   { return "w-7" }
func (p *play) NodeName() string { return "mock-2" }
func (p *play) Plane() string    { return "tcp" }
func (p *play) Lane() int        { return 0 }
func (p *play) Retries() int     { return p.retries }

// waitFor waits until the test object has had something done to it.
func (p *play) waitFor(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not %s", what)
	}
}

type bench struct {
	*Server
	t       *testing.T
	url     string
	addr    string
	backend *scripted
	reg     *prometheus.Registry
	client  *http.Client
}

// serve starts a server on a real socket. edit may be nil.
func serve(t *testing.T, backend *scripted, edit func(*Config)) *bench {
	t.Helper()
	if backend.models == nil {
		backend.models = []string{"m"}
	}
	reg := prometheus.NewRegistry()
	cfg := Config{Backend: backend, Metrics: reg}
	if edit != nil {
		edit(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	tr := &http.Transport{}
	b := &bench{Server: s, t: t, url: "http://" + l.Addr().String(), addr: l.Addr().String(), backend: backend,
		reg:    reg,
		client: &http.Client{Transport: tr, Timeout: 2 * patience}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		b.untilOpen(0)
	})
	return b
}

func playing(p *play) *scripted {
	return &scripted{open: func(context.Context, Call) (Stream, error) { return p.stream(), nil }}
}

// stream is p as the tests of now have it.
func (p *play) stream() Stream {
	if asPasses {
		return &passPlay{sinkPlay: newSinkPlay(p)}
	}
	if asSinks {
		return newSinkPlay(p)
	}
	return p
}

func failing(err error) *scripted {
	return &scripted{open: func(context.Context, Call) (Stream, error) { return nil, err }}
}

func (b *bench) untilOpen(n int) {
	b.t.Helper()
	for end := time.Now().Add(patience); b.Open() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%d requests are open, want %d", b.Open(), n)
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

var created = regexp.MustCompile(`"created":[0-9]+`)

func (b *bench) do(method, path, body string, header ...string) answer {
	b.t.Helper()
	r, err := http.NewRequest(method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	p, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, created.ReplaceAllString(string(p), `"created":0`)}
}

// value is the value of a metric: counters, gauges, and a histogram's count. Labels are name, value pairs that must
// match.
func (b *bench) value(name string, labels ...string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if !matches(m, labels) {
				continue
			}
			switch {
			case m.Counter != nil:
				sum += m.Counter.GetValue()
			case m.Gauge != nil:
				sum += m.Gauge.GetValue()
			case m.Histogram != nil:
				sum += float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return sum
}

func matches(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		ok := false
		for _, l := range m.Label {
			ok = ok || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !ok {
			return false
		}
	}
	return true
}

// untilValue polls: what ends a request is counted after its last byte.
func (b *bench) untilValue(want float64, name string, labels ...string) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := b.value(name, labels...)
		if got == want {
			return
		}
		if time.Now().After(end) {
			b.t.Errorf("%s%v is %v, want %v", name, labels, got, want)
			return
		}
	}
}

const (
	chatBody   = `{"model":"m","messages":[{"role":"user","content":"a b c"}]}`
	chatStream = `{"model":"m","messages":[{"role":"user","content":"a b c"}],"stream":true}`
)

var errBoom = errors.New("boom")
