package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// engine is a worker process in miniature: what it does with a request is in the request's model.
type engine struct {
	running  sync.WaitGroup
	canceled chan string // ids of requests whose writer was cancelled

	ids               sync.Map // of modelSteps, that have ended
	ended, endedTwice atomic.Int64
}

const (
	modelEcho    = "echo"    // makes max_tokens tokens
	modelSteps   = "steps"   // the same, a few at a time
	modelForever = "forever" // makes one token, then waits to be cancelled
	modelSilent  = "silent"  // makes no token, waits to be cancelled
	modelFails   = "fails"   // fails before the first token
	modelBreaks  = "breaks"  // fails after the first token
	modelBusy    = "busy"    // refuses
)

func (e *engine) handle(req discovery.Request, w *responseplane.Writer) discovery.Reply {
	r, err := mockproto.DecodeRequest(req.Payload)
	if err != nil {
		return discovery.Reply{Answer: discovery.BadRequest, Reason: err.Error()}
	}
	if r.Model == modelBusy {
		return discovery.Reply{Answer: discovery.Busy, Reason: "on purpose"}
	}
	e.running.Go(func() { e.run(r, w) })
	return discovery.Reply{Answer: discovery.Accepted}
}

func (e *engine) run(r mockproto.Request, w *responseplane.Writer) {
	ctx := context.Background()
	switch r.Model {
	case modelFails:
		w.Fail(responseplane.Failure{Code: responseplane.CodeValidation, Text: "on purpose"})
		return
	case modelEcho, modelSteps:
		if r.Model == modelSteps {
			defer func() {
				e.ended.Add(1)
				if _, twice := e.ids.LoadOrStore(r.ID, true); twice {
					e.endedTwice.Add(1)
				}
			}()
		}
		for i := range r.MaxTokens {
			if r.Model == modelSteps && i%4 == 0 {
				time.Sleep(2 * time.Millisecond) // a step of the engine
			}
			if w.Send(ctx, fmt.Appendf(nil, " %d", i)) != nil {
				return
			}
		}
		w.Complete(mockproto.Trailer{FinishReason: "length", PromptTokens: r.PromptTokens,
			CompletionTokens: r.MaxTokens}.Append(nil))
		return
	case modelBreaks, modelForever:
		w.Send(ctx, []byte(" 0"))
	}
	if r.Model == modelBreaks {
		w.Fail(responseplane.Failure{Code: responseplane.CodeInternal, Text: "on purpose"})
		return
	}
	<-w.Done()
	e.canceled <- r.ID
}

// cluster starts etcd, NATS, a worker process and the frontend program, and returns when the worker can be reached.
func cluster(t *testing.T, plane string, args ...string) (*program, *engine) {
	t.Helper()
	e, n := devtest.Etcd(t), devtest.NATS(t)
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	later := func(close func() error) {
		t.Cleanup(func() {
			if err := close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	id, err := transport.NewIdentity()
	must(err)
	flags := parse(t, "--response-plane="+plane, "--bind-addr=127.0.0.1:0").plane
	transports, err := flags.Transports(id, nil)
	must(err)
	later(transports[0].Close)
	cfg := flags.Worker(id, transports, nil)
	cfg.Name = "mock-1"
	w, err := responseplane.NewWorker(cfg)
	must(err)
	later(w.Close)
	must(w.Listen(ctx))
	del, err := nats.New(ctx, nats.Config{URL: n.URL()})
	must(err)
	later(del.Close)
	eng := &engine{canceled: make(chan string, 16)}
	t.Cleanup(eng.running.Wait)
	rec := discovery.Worker{ID: "w-0", Models: []string{modelEcho, modelSteps, modelForever, modelSilent, modelFails,
		modelBreaks, modelBusy}, Node: w.Descriptor()}
	_, err = w.Serve(ctx, del, rec, eng.handle)
	must(err)
	reg, err := etcd.New(ctx, etcd.Config{Endpoints: e.Endpoints()})
	must(err)
	later(reg.Close)
	_, err = reg.Register(ctx, []discovery.Worker{rec})
	must(err)
	p := startWith(t, connect, append([]string{"--etcd-endpoints=" + strings.Join(e.Endpoints(), ","), "--nats-url=" +
		n.URL(),
		"--response-plane=" + plane, "--retry-limit=0"}, args...)...)
	p.untilReady(200)
	return p, eng
}

// TestThroughTheRealPlane runs requests from HTTP to a worker and back over real etcd, NATS and lanes.
func TestThroughTheRealPlane(t *testing.T) {
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC} {
		t.Run(plane, func(t *testing.T) { throughThePlane(t, plane) })
	}
}

func throughThePlane(t *testing.T, plane string) {
	p, eng := cluster(t, plane)
	ask := func(model string, stream bool) string {
		return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a b c"}],"max_tokens":50,"stream":%v,"stream_options":{"include_usage":true}}`, model, stream)
	}
	read := func(body io.Reader) string {
		t.Helper()
		b, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}

	if _, body := p.get(p.http + "/v1/models"); strings.Count(body, `"object":"model"`) != 7 {
		t.Errorf("models: %s", body)
	}
	if _, body := p.get(p.admin + "/debug/plane"); !strings.Contains(body, `"reachable": 1`) ||
		!strings.Contains(body, `"name": "mock-1"`) {
		t.Errorf("/debug/plane: %s", body)
	}

	resp := p.post(ask(modelEcho, true))
	body := read(resp.Body)
	for i := range 50 {
		if strings.Count(body, fmt.Sprintf(`"content":" %d"`, i)) != 1 {
			t.Fatalf("token %d: %s", i, body)
		}
	}
	if !strings.Contains(body, `"usage":{"prompt_tokens":3,"completion_tokens":50,"total_tokens":53}`) ||
		!strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("%s", body)
	}
	for k, want := range map[string]string{"X-Laneway-Worker": "w-0", "X-Laneway-Process": "mock-1",
		"X-Laneway-Lane": plane + "/0"} {
		if got := resp.Header.Get(k); got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
	if resp := p.post(ask(modelEcho, false)); resp.StatusCode != 200 || !strings.Contains(read(resp.Body),
		` 48 49","refusal"`) {
		t.Errorf("not streamed: %d", resp.StatusCode)
	}
	for model, want := range map[string]int{modelFails: 400, modelBusy: 429, "other": 404} {
		if resp := p.post(ask(model, true)); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", model, resp.StatusCode, read(resp.Body), want)
		}
	}
	if body := read(p.post(ask(modelBreaks, true)).Body); !strings.Contains(body, `"content":" 0"`) ||
		!strings.Contains(body, `"type":"server_error"`) ||
		!strings.Contains(body, "on purpose") || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("mid-stream failure: %s", body)
	}

	// A client that leaves ends the engine's work, in mid-stream and before the first token.
	resp = p.post(ask(modelForever, true))
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Fatalf("%q %v", line, err)
	}
	resp.Body.Close()
	gone := func(what string) {
		t.Helper()
		select {
		case <-eng.canceled:
		case <-time.After(patience):
			t.Fatalf("%s: the engine's work goes on", what)
		}
	}
	gone("mid-stream")
	p.leaveEarly(ask(modelSilent, true))
	gone("before the first token")

	_, metrics := p.get(p.admin + "/metrics")
	for _, want := range []string{
		`laneway_frontend_requests_total{endpoint="chat_completions",error_type="",model="echo",request_type="stream",status="200"} 1`,
		`laneway_frontend_requests_total{endpoint="chat_completions",error_type="overload",model="busy",request_type="stream",status="429"} 1`,
		`laneway_frontend_output_tokens_total{model="echo"} 100`,
		`laneway_streams_ended_total{end="complete"} 2`,
		fmt.Sprintf(`laneway_plane_records_total{direction="in",plane=%q} 102`, plane),
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	p.signal()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// leaveEarly sends a request and leaves when it has been handed to the worker, before any answer.
func (p *program) leaveEarly(body string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	p.postCtx(ctx, body)
}
