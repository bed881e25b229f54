//go:build linux

package endtoend

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// span is one that a collector got, and the service that it came from.
type span struct {
	service string
	*tracepb.Span
}

// collected is a collector of OTLP over HTTP.
type collected struct {
	*httptest.Server
	mu  sync.Mutex
	all []span
}

func newCollector(t *testing.T) *collected {
	c := &collected{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &m)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range m.ResourceSpans {
			service := ""
			for _, a := range rs.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					c.all = append(c.all, span{service, s})
				}
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

// of are the spans of a trace, by name.
func (c *collected) of(trace string) map[string]span {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]span)
	for _, s := range c.all {
		if hex.EncodeToString(s.TraceId) == trace {
			out[s.Name] = s
		}
	}
	return out
}

// TestOneTraceOverBothProcesses: a request that brings a trace context has its spans in that trace, those of its worker
// included, which is another process behind NATS.
func TestOneTraceOverBothProcesses(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20") // ms; of the child processes
	w, c := newWorld(t), newCollector(t)
	otlp := "--otlp-endpoint=" + c.URL
	k := w.startWorker(t, "traced", 1, otlp).ready(t)
	f := w.startFrontend(t, otlp, "--trace-ratio=0").serving(t)
	f.sees(t, 1)
	const parent = "b7ad6b7169203331"
	ask := func(trace, flags, params string) string {
		t.Helper()
		r, err := http.NewRequest("POST", f.http+"/v1/chat/completions",
			strings.NewReader(`{"model":"mock","messages":[{"role":"user","content":"x"}],"stream":true,`+params+`}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", fmt.Sprintf("00-%s-%s-%s", trace, parent, flags))
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if params == `"max_tokens":1000` { // the client leaves after the first bytes
			io.ReadFull(resp.Body, make([]byte, 10))
			return ""
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	const whole, left, unwanted = "0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c",
		"2af7651916cd43dd8448eb211c80319c"
	if body := ask(unwanted, "00", `"max_tokens":3`); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%s", body)
	}
	if body := ask(whole, "01", `"max_tokens":3`); !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%s", body)
	}
	ask(left, "01", `"max_tokens":1000`)
	const root = "POST /v1/chat/completions"
	names := []string{root, "route", "deliver", "first record", "stream", "generate"}
	for _, trace := range []string{whole, left} {
		eventually(t, "all spans of trace "+trace, func() bool { return len(c.of(trace)) == len(names) })
		spans := c.of(trace)
		for _, name := range names {
			s, ok := spans[name]
			if !ok {
				t.Fatalf("no span %q in %v", name, spans)
			}
			service, above := "laneway-frontend", spans[root].SpanId
			switch name {
			case root:
				above, _ = hex.DecodeString(parent)
			case "generate":
				service, above = "laneway-mockworker", spans["deliver"].SpanId
			}
			if s.service != service || string(s.ParentSpanId) != string(above) ||
				s.EndTimeUnixNano < s.StartTimeUnixNano {
				t.Errorf("%s: of %s, below %x, want %s, below %x", name, s.service, s.ParentSpanId, service, above)
			}
			bad := trace == left && (name == root || name == "stream" || name == "generate")
			if got := s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR; got != bad {
				t.Errorf("trace %s: %s is marked as failed: %v, want %v (%s)", trace, name, got, bad,
					s.Status.GetMessage())
			}
		}
		if len(spans["generate"].Events) != 1 || spans["generate"].Events[0].Name != "first token" {
			t.Errorf("the worker's events: %v", spans["generate"].Events)
		}
	}
	if n := len(c.of(unwanted)); n != 0 {
		t.Errorf("%d spans of a trace that its caller does not want", n)
	}
	f.quiet(t)
	k.quiet(t)
}
