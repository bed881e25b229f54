package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/test/conformance/internal/programs"
)

// outcome is how a call must end for its user.
type outcome struct {
	status        int // 0: in mid-stream
	errType, code string
	nodeKind      string
}

// What becomes of each failure. nodeKind is the class that the Node client has for it.
var failures = []struct {
	name   string
	model  string
	params map[string]any
	empty  bool // at the frontend that has no worker
	stream bool // only when streamed, and after the first token
	outcome
}{
	{name: "failed early", model: fails, params: tokens(1), outcome: outcome{status: 500, errType: "server_error",
		code: "internal", nodeKind: "InternalServerError"}},
	{name: "failed in mid-stream", model: fails, params: tokens(2000), stream: true,
		outcome: outcome{errType: "server_error", code: "internal"}},
	{name: "not accepted by the worker", model: fine, params: tokens(10_000_000), outcome: outcome{status: 400,
		errType: "invalid_request_error", code: "validation", nodeKind: "BadRequestError"}},
	{name: "not accepted by the frontend", model: fine, params: map[string]any{"n": 2}, outcome: outcome{status: 400,
		errType: "invalid_request_error", code: "unsupported_value", nodeKind: "BadRequestError"}},
	{name: "no such model", model: "none", outcome: outcome{status: 404, errType: "invalid_request_error",
		code: "model_not_found", nodeKind: "NotFoundError"}},
	{name: "too large", model: fine, params: map[string]any{"padding": strings.Repeat("x", 2<<20)},
		outcome: outcome{status: 413, errType: "invalid_request_error", code: "body_too_large", nodeKind: "APIError"}},
	{name: "busy", model: refuse, outcome: outcome{status: 429, errType: "overloaded_error", code: "overload",
		nodeKind: "RateLimitError"}},
	{name: "no worker", model: fine, empty: true, outcome: outcome{status: 503, errType: "service_unavailable",
		code: "unavailable", nodeKind: "InternalServerError"}},
	{name: "first token late", model: stall, params: tokens(1), outcome: outcome{status: 504, errType: "timeout",
		code: "timeout", nodeKind: "InternalServerError"}},
	{name: "silent in mid-stream", model: stall, params: tokens(200), stream: true, outcome: outcome{errType: "timeout",
		code: "timeout"}},
	{name: "truncated at once", model: truncate, params: tokens(1), outcome: outcome{status: 502,
		errType: "upstream_error", code: "protocol", nodeKind: "InternalServerError"}},
	{name: "truncated in mid-stream", model: truncate, params: tokens(200), stream: true,
		outcome: outcome{errType: "upstream_error", code: "protocol"}},
	{name: "worker lost early", model: killEarly, params: tokens(1), outcome: outcome{status: 502,
		errType: "upstream_error", code: "lost", nodeKind: "InternalServerError"}},
	{name: "worker lost in mid-stream", model: killLate, params: tokens(200), stream: true,
		outcome: outcome{errType: "upstream_error", code: "lost"}},
}

func tokens(n int) map[string]any { return map[string]any{"max_tokens": n} }

func TestGoClient(t *testing.T) {
	conforms(t, "go", func(t *testing.T, url string) client { return newGoClient(t, url) })
}

func TestNodeClient(t *testing.T) {
	conforms(t, "node", func(t *testing.T, url string) client { return newNodeClient(t, url) })
}

func conforms(t *testing.T, name string, connect func(t *testing.T, url string) client) {
	first := connect(t, "http://127.0.0.1:1") // a client that is missing is found out before anything starts
	if s := first.do(t, call{Op: "chat", Model: fine}); s.Error == nil || s.Error.Status != 0 {
		t.Fatalf("nobody answered: %+v", s)
	}
	r := newRig(t, killEarly, killLate)
	c, lone, patient := connect(t, r.url), connect(t, r.empty), connect(t, r.patient)

	t.Run("models", func(t *testing.T) {
		s := c.do(t, call{Op: "models"})
		want := []string{fails, fine, killEarly, killLate, lane, refuse, slow, stall, truncate}
		slices.Sort(want)
		if s.Error != nil || !slices.Equal(s.Models, want) || s.One != want[0] {
			t.Errorf("%+v, error %+v, want %v", s, s.Error, want)
		}
	})
	for _, op := range []string{"chat", "completion", "chat stream", "completion stream"} {
		t.Run(op, func(t *testing.T) {
			for _, limit := range []string{"max_tokens", "max_completion_tokens"} {
				for _, model := range []string{fine, lane} { // a lane that dies is no event
					k := call{Op: op, ID: fmt.Sprintf("%s-%s-%s-%s", name, strings.ReplaceAll(op, " ", "-"), limit,
						model), Model: model,
						Params: map[string]any{limit: 40, "n": 1, "temperature": 0.5, "seed": 7,
							"something_new": map[string]any{"a": []int{1}}}}
					s := c.do(t, k)
					if s.Error != nil || s.Text != text(k.ID, 40) || s.Finish != "length" || s.Tokens != 40 ||
						s.Prompt == 0 {
						t.Errorf("%s: %+v, error %+v", k.ID, s, s.Error)
					}
					if strings.HasPrefix(op, "chat") && s.Role != "assistant" {
						t.Errorf("%s: the role is %q", k.ID, s.Role)
					}
				}
			}
			// A stop string ends the answer before it, and is not part of it.
			k := call{Op: op, ID: name + "-stop", Model: fine}
			whole := text(k.ID, 40)
			stop := whole[60:70]
			k.Params = map[string]any{"max_tokens": 40, "stop": []string{stop}}
			if s := c.do(t, k); s.Error != nil || s.Text != whole[:strings.Index(whole, stop)] || s.Finish != "stop" {
				t.Errorf("stop %q: %+v, error %+v", stop, s, s.Error)
			}
		})
	}
	t.Run("cancel", func(t *testing.T) {
		for _, x := range []struct{ when, model string }{{"mid-stream", fine}, {"early", stall}} {
			cancelled := func() float64 {
				return programs.Metric(t, r.workers[x.model],
					"laneway_worker_cancelled_total")
			}
			left := func() float64 {
				return programs.Metric(t, r.admin, "laneway_frontend_requests_total", `status="499"`,
					`error_type="cancelled"`, fmt.Sprintf("model=%q", x.model))
			}
			before, gone := cancelled(), left()
			k := call{Op: "chat stream", ID: name + "-cancel-" + x.when, Model: x.model, Params: tokens(100_000),
				Cancel: x.when}
			if x.when == "early" {
				k.Params = tokens(1) // it stalls before that
			}
			s := c.do(t, k)
			if x.when == "mid-stream" && (s.Error != nil || s.Chunks != 3 || s.Text != text(k.ID, 3)) ||
				x.when == "early" && (s.Error == nil || s.Error.Status != 0) {
				t.Errorf("%s: %+v, error %+v", x.when, s, s.Error)
			}
			eventually(t, "cancel at the worker, "+x.when, func() bool { return cancelled() == before+1 })
			eventually(t, "cancel at the frontend, "+x.when, func() bool { return left() == gone+1 })
		}
	})
	t.Run("one id for several", func(t *testing.T) {
		id := name + "-several"
		answers := map[string]bool{}
		for _, op := range []string{"chat", "completion", "chat stream", "completion stream"} {
			s := c.do(t, call{Op: op, ID: id, Model: fine, Params: tokens(4)})
			if s.Error != nil || s.Text != text(id, 4) || !strings.Contains(s.Answer, "cmpl-") || answers[s.Answer] ||
				strings.Contains(s.Answer, id) {
				t.Errorf("%s: %+v, error %+v", op, s, s.Error)
			}
			answers[s.Answer] = true
			_, own, _ := strings.Cut(s.Answer, "-")
			if got := programs.Get(t, r.admin+"/debug/plane/streams/"+own); !strings.Contains(got,
				fmt.Sprintf(`"client_request_id": %q`, id)) {
				t.Errorf("%s leads to %s", own, got)
			}
		}
		if got := programs.Get(t, r.admin+"/debug/plane/streams/"+id); !strings.Contains(got, `"matches": 4`) {
			t.Errorf("the four requests with one id: %s", got)
		}
	})
	t.Run("long wait", func(t *testing.T) {
		for _, op := range []string{"chat stream", "completion stream"} {
			k := call{Op: op, ID: name + "-long-wait-" + strings.ReplaceAll(op, " ", "-"), Model: slow,
				Params: tokens(8)}
			if s := patient.do(t, k); s.Error != nil || s.Text != text(k.ID, 8) || s.Finish != "length" ||
				s.Tokens != 8 {
				t.Errorf("%s: %+v, error %+v", op, s, s.Error)
			}
			// What fails once the header has gone out is an event.
			k.Model, k.Params = stall, tokens(1)
			kind := map[string]string{"go": "StreamError", "node": "APIError"}[name]
			s := patient.do(t, k)
			if e := s.Error; e == nil || e.Kind != kind || e.Code != "timeout" || e.Type != "timeout" || s.Text != "" {
				t.Errorf("%s: %+v, error %+v", op, s, e)
			}
		}
	})
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			ops := []string{"chat", "completion stream", "completion", "chat stream"}
			if f.stream {
				ops = []string{"chat stream", "completion stream"}
			}
			if strings.HasPrefix(f.model, "kill") { // there is one worker to kill
				ops = ops[:1]
			}
			for _, op := range ops {
				k := call{Op: op, ID: strings.ReplaceAll(name+"-"+f.name+"-"+op, " ", "-"), Model: f.model,
					Params: f.params}
				who := c
				if f.empty {
					who = lone
				}
				s := who.do(t, k)
				if s.Error == nil {
					t.Errorf("%s: no error: %+v", op, s)
					continue
				}
				e := *s.Error
				if e.Type != f.errType || e.Code != f.code || e.Message == "" {
					t.Errorf("%s: %+v, want type %s, code %s", op, e, f.errType, f.code)
				}
				if !f.stream {
					kind := map[string]string{"go": "Error", "node": f.nodeKind}[name]
					if e.Status != f.status || e.Kind != kind || s.Text != "" {
						t.Errorf("%s: %+v after %q, want status %d, %s", op, e, s.Text, f.status, kind)
					}
					continue
				}
				kind := map[string]string{"go": "StreamError", "node": "APIError"}[name]
				if e.Kind != kind || s.Text == "" || s.Text != text(k.ID, s.Chunks) || s.Finish != "" || s.Tokens != 0 {
					t.Errorf("%s: %+v, %+v, want %s after some tokens and no finish reason", op, s, e, kind)
				}
			}
		})
	}
	// Every request is accounted for, once.
	eventually(t, "end of every request", func() bool {
		started, ended := programs.Metric(t, r.admin, "laneway_frontend_requests_started_total"),
			programs.Metric(t, r.admin, "laneway_frontend_requests_total")
		return started > 0 && started == ended && programs.Metric(t, r.admin, "laneway_frontend_inflight_requests") == 0
	})
}

// text is what the mock engine makes for a request.
func text(id string, n int) string {
	g := tokentext.New(id)
	var b []byte
	for i := range n {
		b = g.Append(b, i)
	}
	return string(b)
}
