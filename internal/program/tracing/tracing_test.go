package tracing

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/responseplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a collector: it takes OTLP over HTTP and keeps the spans by name.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans map[string]int
	path  string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{spans: make(map[string]int)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		var m collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.path = q.URL.Path
		for _, rs := range m.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					r.spans[s.Name]++
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(r.Close)
	return r
}

func none(t *testing.T) {
	t.Setenv(envEndpoint, "")
	t.Setenv(envTracesEndpoint, "")
}

func TestOff(t *testing.T) {
	none(t)
	tr, err := New(t.Context(), Config{Ratio: 1})
	if tr != nil || err != nil {
		t.Fatalf("%v %v", tr, err)
	}
	// What callers do with no tracer.
	r := tr.Request(http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		"/v1/completions", "id", "mine")
	r.Model("m")
	r.Stream("w", "p", "quic", 0)
	r.End(200, 1, "")
	if r != nil || r.Open() != nil || r.ID() != "" {
		t.Errorf("%v", r)
	}
	if w := tr.Work(nil, map[string]string{"traceparent": "x"}, "w", "m", "id"); w != nil {
		t.Errorf("%v", w)
	}
	tr.Close()
}

// TestWhereTracesGo has the flag beat the environment, and both lead to /v1/traces.
func TestWhereTracesGo(t *testing.T) {
	for _, c := range []struct {
		name, flag string
		env        bool
		ratio      float64
		header     string
		want       int
	}{
		{name: "flag", flag: "URL", ratio: 1, want: 1},
		{name: "flag with a slash", flag: "URL/", ratio: 1, want: 1},
		{name: "flag with the path", flag: "URL/v1/traces", ratio: 1, want: 1},
		{name: "environment", env: true, ratio: 1, want: 1},
		{name: "no share", flag: "URL", ratio: 0, want: 0},
		{name: "no share, but the caller wants it", flag: "URL",
			header: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", want: 1},
		{name: "the caller does not want it", flag: "URL", ratio: 1,
			header: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", want: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			none(t)
			r := newReceiver(t)
			if c.env {
				t.Setenv(envEndpoint, r.URL)
			}
			tr, err := New(t.Context(), Config{Endpoint: redact.New(strings.Replace(c.flag, "URL", r.URL, 1)),
				Ratio: c.ratio, Service: "test", Instance: "one"})
			if err != nil {
				t.Fatal(err)
			}
			h := http.Header{}
			if c.header != "" {
				h.Set("Traceparent", c.header)
			}
			tr.Request(h, "/v1/completions", "id", "mine").End(200, 1, "")
			tr.Close()
			tr.Close()
			r.mu.Lock()
			defer r.mu.Unlock()
			if n := r.spans["POST /v1/completions"]; n != c.want || n > 0 && r.path != "/v1/traces" {
				t.Errorf("%d spans to %q, want %d", n, r.path, c.want)
			}
		})
	}
}

// TestCollectorThatIsNotThere holds that a program neither waits nor fails for its traces.
func TestCollectorThatIsNotThere(t *testing.T) {
	none(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "200")
	var log bytes.Buffer
	tr, err := New(t.Context(), Config{Endpoint: redact.New("http://127.0.0.1:1"), Ratio: 1,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	tr.Request(http.Header{}, "/v1/completions", "id", "mine").End(200, 1, "")
	tr.Close()
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log says nothing: %q", log.String())
	}
}

func TestEndpointsThatAreNone(t *testing.T) {
	for _, bad := range []string{"collector:4318", "grpc://collector:4317", "http://", "::"} {
		app := cli.New("x", "")
		app.Env = nil
		Register(app)
		if err := app.Parse([]string{"--otlp-endpoint=" + bad}); err == nil || !strings.Contains(err.Error(), bad) ||
			!strings.Contains(err.Error(), "http://collector:4318") {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := New(t.Context(), Config{Endpoint: redact.New(bad)}); err == nil {
			t.Errorf("%q: taken", bad)
		}
	}
}

// TestVariablesAreNotQuoted: the library quotes what it does not understand of its variables; this program's log does
// not. What is said past the log would be missing here.
func TestVariablesAreNotQuoted(t *testing.T) {
	t.Setenv(envEndpoint, "http://svc:secret@collector:43x18")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=%zzsecret,secret")
	var log bytes.Buffer
	tr, err := New(t.Context(), Config{Ratio: 1, Service: "test", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if s := log.String(); strings.Contains(s, "secret") || strings.Count(s, "is not used") != 3 {
		t.Errorf("the log: %s", s)
	}
}

// fakeWriter is a response of which a test says how it goes.
type fakeWriter struct{ err error }

func (f *fakeWriter) TryPut([]byte) error              { return f.err }
func (f *fakeWriter) OnWritable(func())                {}
func (f *fakeWriter) Err() error                       { return f.err }
func (f *fakeWriter) StopRequested() bool              { return false }
func (f *fakeWriter) PutComplete([]byte) error         { return f.err }
func (f *fakeWriter) Fail(responseplane.Failure) error { return nil }

// TestWorkEndsOnce holds that the worker's span ends with each way in which a response does, and not before.
func TestWorkEndsOnce(t *testing.T) {
	none(t)
	boom := errors.New("boom")
	for name, play := range map[string]func(f *fakeWriter, w Writer){
		"complete": func(f *fakeWriter, w Writer) { w.PutComplete(nil); f.err = boom; w.Err() },
		"failed":   func(_ *fakeWriter, w Writer) { w.Fail(responseplane.Failure{Text: "x"}) },
		"killed":   func(f *fakeWriter, w Writer) { f.err = boom; w.Err(); w.TryPut(nil) },
		"put":      func(f *fakeWriter, w Writer) { f.err = boom; w.TryPut(nil) },
		"late end": func(f *fakeWriter, w Writer) { f.err = boom; w.PutComplete(nil) },
		"refused":  func(_ *fakeWriter, w Writer) { Refused(w, "busy") },
		"": func(f *fakeWriter, w Writer) { // goes on
			f.err = responseplane.ErrWindowFull
			w.TryPut(nil)
			f.err = nil
			w.Err()
		},
	} {
		r := newReceiver(t)
		tr, err := New(t.Context(), Config{Endpoint: redact.New(r.URL), Ratio: 1})
		if err != nil {
			t.Fatal(err)
		}
		f := &fakeWriter{}
		w := tr.Work(f, map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			"w", "m", "id")
		if err := w.TryPut([]byte("a")); err != nil {
			t.Fatal(err)
		}
		play(f, w)
		tr.Close()
		r.mu.Lock()
		want := 1
		if name == "" {
			want = 0
		}
		if n := r.spans["generate"]; n != want {
			t.Errorf("%q: %d spans have ended, want %d", name, n, want)
		}
		r.mu.Unlock()
	}
}
