package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// playedPlane is a plane whose only response a test plays by hand.
type playedPlane struct {
	records chan string // closing it completes the response
	failed  chan error
	closed  chan struct{}
	once    sync.Once
}

func newPlayedPlane() *playedPlane {
	return &playedPlane{records: make(chan string, 16), failed: make(chan error, 1), closed: make(chan struct{})}
}

func (p *playedPlane) Models() []string     { return []string{"m"} }
func (p *playedPlane) Ready() error         { return nil }
func (p *playedPlane) Failed() <-chan error { return p.failed }
func (p *playedPlane) Close() error         { p.once.Do(func() { close(p.closed) }); return nil }
func (p *playedPlane) State() planeState {
	return planeState{
		Workers: []responseplane.WorkerStatus{{ID: "w-0", Models: []string{"m"}, Node: "n", Name: "mock-1",
			Reachable: true, Open: 1}, {ID: "w-1", Err: "refused"}},
		Stats: responseplane.Stats{RecordsIn: 5},
		Sockets: []transport.SocketInfo{{Plane: "quic", Role: "lane", Port: 4711, RecvAsked: 8 << 20,
			RecvGranted: 16 << 20, GRO: true}, {Plane: "tcp", Role: "lane", Port: 4712}},
	}
}

func (p *playedPlane) Find(id string, most int) ([]responseplane.RequestInfo, int) {
	switch id {
	case "there":
		return []responseplane.RequestInfo{{ID: id, State: responseplane.RequestRouting}}, 1
	case "twice":
		return []responseplane.RequestInfo{{ID: "b", ClientID: id, State: responseplane.RequestRouting},
			{ID: "a", ClientID: id, State: responseplane.RequestEnded}}, 2
	}
	return nil, 0
}

func (p *playedPlane) Load(int) responseplane.Load { return responseplane.Load{Routing: 1} }

func (p *playedPlane) Open(context.Context, frontend.Call) (frontend.Stream, error) { return p, nil }
func (p *playedPlane) NextBatch(ctx context.Context) ([][]byte, error) {
	select {
	case r, ok := <-p.records:
		if !ok {
			return nil, io.EOF
		}
		return [][]byte{[]byte(r)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (p *playedPlane) Trailer() []byte {
	return []byte(`{"finish_reason":"stop","prompt_tokens":1,"completion_tokens":2}`)
}
func (p *playedPlane) Stop()            {}
func (p *playedPlane) Kill()            {}
func (p *playedPlane) Worker() string   { return "w-0" }
func (p *playedPlane) NodeName() string { return "mock-1" }
func (p *playedPlane) Plane() string    { return "quic" }
func (p *playedPlane) Lane() int        { return 3 }
func (p *playedPlane) Retries() int     { return 0 }

// stream is the played response as a Stream: its Close must not close the plane.
type stream struct{ *playedPlane }

func (stream) Close() error { return nil }

type openPlane struct{ *playedPlane }

func (p openPlane) Open(context.Context, frontend.Call) (frontend.Stream, error) {
	return stream(p), nil
}

// watchLog is a log handler that hands out the addresses of the line "serving", as a user would read them.
type watchLog struct {
	slog.Handler
	served chan [2]string
}

func (w watchLog) Enabled(context.Context, slog.Level) bool { return true }
func (w watchLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "serving" {
		var a [2]string
		r.Attrs(func(at slog.Attr) bool {
			switch at.Key {
			case "http":
				a[0] = at.Value.String()
			case "admin":
				a[1] = at.Value.String()
			}
			return true
		})
		w.served <- a
	}
	return nil
}

type program struct {
	t           *testing.T
	plane       *playedPlane
	http, admin string
	signal      context.CancelFunc
	ended       chan error
	client      *http.Client
}

// parse makes settings from flags, on ports that the kernel chooses.
func parse(t *testing.T, args ...string) settings {
	t.Helper()
	app := cli.New("frontend", "")
	app.Env = nil
	f := declare(app)
	if err := app.Parse(append([]string{"--http-addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--name=fe"},
		args...)); err != nil {
		t.Fatal(err)
	}
	s, err := f.settings()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs the program over a played plane.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	played := newPlayedPlane()
	p := startWith(t, playedConnector(played), args...)
	p.plane = played
	return p
}

func playedConnector(p *playedPlane) connector {
	return func(context.Context, *slog.Logger, settings, prometheus.Registerer) (plane, error) {
		return openPlane{p}, nil
	}
}

func startWith(t *testing.T, connect connector, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{t: t, signal: cancel, ended: make(chan error, 1)}
	tr := &http.Transport{}
	p.client = &http.Client{Transport: tr, Timeout: patience}
	w := watchLog{Handler: slog.DiscardHandler, served: make(chan [2]string, 1)}
	s := parse(t, args...)
	go func() {
		defer close(p.ended)
		p.ended <- run(ctx, slog.New(w), s, connect)
	}()
	t.Cleanup(func() {
		cancel()
		tr.CloseIdleConnections()
		for range p.ended { // joins it, also after a test that gave up
		}
	})
	select {
	case a := <-w.served:
		p.http, p.admin = "http://"+a[0], "http://"+a[1]
	case err := <-p.ended:
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the program does not serve")
	}
	return p
}

func (p *program) get(url string) (int, string) {
	p.t.Helper()
	resp, err := p.client.Get(url)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// postCtx sends a request that is expected to be given up.
func (p *program) postCtx(ctx context.Context, body string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", p.http+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if resp, err := p.client.Do(r); err == nil {
		p.t.Errorf("answered with %d", resp.StatusCode)
		resp.Body.Close()
	}
}

func (p *program) post(body string) *http.Response {
	p.t.Helper()
	resp, err := p.client.Post(p.http+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// untilReady polls /readyz until it answers code.
func (p *program) untilReady(code int) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if c, _ := p.get(p.admin + "/readyz"); c == code {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("/readyz never becomes %d", code)
		}
	}
}

func (p *program) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		p.t.Fatal("the program does not end")
		return nil
	}
}

const streaming = `{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}`

func TestSignalDrains(t *testing.T) {
	p := start(t)
	p.untilReady(200)
	p.plane.records <- " a"
	resp := p.post(streaming)
	if resp.StatusCode != 200 || resp.Header.Get("X-Laneway-Lane") != "quic/3" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	p.signal()
	p.untilReady(503)
	if c, _ := p.get(p.admin + "/livez"); c != 200 {
		t.Errorf("/livez is %d while draining", c)
	}
	refused := func() bool {
		r := p.post(streaming)
		return r.StatusCode == 503 && r.Header.Get("Retry-After") != ""
	}
	// readyz fails a moment before new requests are refused; a request that slips in waits for the same played records.
	for end := time.Now().Add(patience); !func() bool { p.plane.records <- " b"; return refused() }(); {
		if time.Now().After(end) {
			t.Fatal("new requests are not refused")
		}
	}
	close(p.plane.records)
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "data: [DONE]\n\n") || !strings.Contains(string(body),
		`"finish_reason":"stop"`) {
		t.Errorf("the open stream did not finish: %v %q", err, body)
	}
	if err := p.end(); err != nil {
		t.Errorf("ended with %v", err)
	}
	select {
	case <-p.plane.closed:
	default:
		t.Error("the plane was not closed")
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(p.http, "http://")); err == nil {
		t.Error("the port is still open")
	}
}

func TestDrainTimeoutCuts(t *testing.T) {
	p := start(t, "--drain-timeout=30ms")
	p.plane.records <- " a"
	resp := p.post(streaming)
	p.signal()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), `"error":`) || !strings.HasSuffix(string(body),
		"data: [DONE]\n\n") {
		t.Errorf("%v %q", err, body)
	}
	if err := p.end(); err == nil || !strings.Contains(err.Error(),
		"1 open responses did not end within --drain-timeout") {
		t.Errorf("ended with %v", err)
	}
}

func TestDrainGraceServes(t *testing.T) {
	p := start(t, "--drain-grace=1s")
	p.signal()
	p.untilReady(503)
	p.plane.records <- " a"
	if resp := p.post(streaming); resp.StatusCode != 200 { // within the grace; played to its end below
		t.Errorf("a request in the grace: %d", resp.StatusCode)
	}
	close(p.plane.records)
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestPlaneFailureEnds(t *testing.T) {
	p := start(t)
	boom := errors.New("boom")
	p.plane.failed <- boom
	if err := p.end(); !errors.Is(err, boom) {
		t.Error(err)
	}
}

func TestPortsInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"http-addr", "admin-addr"} {
		err := run(context.Background(), slog.New(slog.DiscardHandler), parse(t, "--"+flag+"="+l.Addr().String()),
			func(context.Context, *slog.Logger, settings, prometheus.Registerer) (plane, error) {
				t.Error("connected although a port is in use")
				return nil, errors.New("no")
			})
		var fe *cli.FlagError
		if !errors.As(err, &fe) || fe.Flag != flag || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("--%s: %v", flag, err)
		}
	}
}

func TestTooFewFiles(t *testing.T) {
	if cli.NeedFiles(10_000_000, "this test") == nil {
		t.Skip("this process may open ten million files")
	}
	err := run(context.Background(), slog.New(slog.DiscardHandler), parse(t, "--max-open-requests=10000000"), nil)
	var fe *cli.FilesError
	if !errors.As(err, &fe) || !strings.Contains(err.Error(), "--max-open-requests 10000000") {
		t.Errorf("got %v", err)
	}
}

func TestDebugPlane(t *testing.T) {
	p := start(t)
	code, body := p.get(p.admin + "/debug/plane")
	var v debugView
	if err := json.Unmarshal([]byte(body), &v); err != nil || code != 200 {
		t.Fatalf("%d %v: %s", code, err, body)
	}
	if v.Workers.Known != 2 || v.Workers.Reachable != 1 || len(v.WorkerList) != 2 || v.WorkerList[1].Err != "refused" ||
		!v.Ready || v.Process != "fe" {
		t.Errorf("%s", body)
	}
	if len(v.Sockets) != 2 || v.Sockets[0].Process != "fe" || v.Sockets[0].Port != 4711 ||
		*v.Sockets[0].RecvGranted != 16<<20 || !*v.Sockets[0].GRO ||
		v.Sockets[1].GRO != nil || v.Sockets[1].RecvAsked != nil {
		t.Errorf("sockets: %s", body)
	}
	if v.Config["drain-timeout"] != "30s" || v.Stats.RecordsIn != 5 {
		t.Errorf("config %v, stats %v", v.Config, v.Stats.RecordsIn)
	}
	i := slices.IndexFunc(v.Settings, func(s planeflags.Setting) bool { return s.Name == "udp-recv-buffer" })
	if i < 0 || v.Settings[i] != (planeflags.Setting{Name: "udp-recv-buffer", Asked: "8MiB",
		InForce: "16MiB granted"}) {
		t.Errorf("settings: %+v", v.Settings)
	}
	_, metrics := p.get(p.admin + "/metrics")
	for _, s := range v.Settings {
		if line := fmt.Sprintf("laneway_setting_info{asked=%q,in_force=%q,setting=%q} 1\n", s.Asked, s.InForce,
			s.Name); !strings.Contains(metrics, line) {
			t.Errorf("/metrics lacks what /debug/plane says: %s", line)
		}
	}
	if n := strings.Count(metrics, "\nlaneway_setting_info{"); n != len(v.Settings) {
		t.Errorf("/metrics has %d settings, /debug/plane %d", n, len(v.Settings))
	}
	p.signal()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

func TestMetricsPage(t *testing.T) {
	p := start(t)
	_, body := p.get(p.admin + "/metrics")
	for _, want := range []string{`laneway_process_info{name="fe",role="frontend"} 1`,
		"laneway_host_udp_rcvbuf_errors_total ", "process_cpu_seconds_total",
		"laneway_frontend_disconnected_clients_total 0", "go_goroutines"} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	p.signal()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}
