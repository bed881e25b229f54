package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

// taken is a response that only says whether it was given to an engine.
type taken struct{ mock.Writer }

func (taken) OnWritable(func())     {}
func (taken) Err() error            { return nil }
func (taken) StopRequested() bool   { return false }
func (taken) TryPut([]byte) error   { return nil }
func (taken) Complete([]byte) error { return nil }

func (taken) Fail(responseplane.Failure) error { return nil }

// refusals reads the counters of refused requests.
func refusals(t *testing.T, m *metrics) map[string]int {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]int)
	for _, f := range families {
		if f.GetName() == "laneway_worker_refused_total" {
			for _, c := range f.GetMetric() {
				if v := int(c.GetCounter().GetValue()); v > 0 {
					out[c.GetLabel()[0].GetValue()] = v
				}
			}
		}
	}
	return out
}

func TestReplies(t *testing.T) {
	m := newMetrics("w")
	e, err := mock.Start(mock.Config{Flush: func() {}, Observer: m, MaxNumSeqs: 1, MaxWaitingQueueLength: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	take := (&taker{engine: e, model: "m", metrics: m}).take
	payload := func(change func(*mockproto.Request)) []byte {
		r := mockproto.Request{ID: "r", Model: "m", Kind: mockproto.KindChat, MaxTokens: 1000}
		change(&r)
		p, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	good := payload(func(*mockproto.Request) {})
	for _, c := range []struct {
		name    string
		payload []byte
		answer  discovery.Answer
		reason  string // part of the reply's reason
		counted string
	}{
		{"runs", good, discovery.Accepted, "", ""},
		{"waits", good, discovery.Accepted, "", ""},
		{"no place", good, discovery.Busy, "are taken", "busy"},
		{"no JSON", []byte("{"), discovery.BadRequest, "payload", "bad_request"},
		{"version", []byte(`{"v":9}`), discovery.Unsupported, "version 9", "unsupported"},
		{"model", payload(func(r *mockproto.Request) { r.Model = "other" }), discovery.BadRequest, `"other"`,
			"bad_request"},
		{"length", payload(func(r *mockproto.Request) { r.MaxTokens = 1 << 30 }), discovery.BadRequest, "max_tokens",
			"too_long"},
	} {
		before := refusals(t, m)
		reply := take(discovery.Request{ID: "r", Payload: c.payload}, taken{})
		if reply.Answer != c.answer || !strings.Contains(reply.Reason, c.reason) ||
			(c.reason == "") != (reply.Reason == "") {
			t.Errorf("%s: %+v, want %s, %q", c.name, reply, c.answer, c.reason)
		}
		after := refusals(t, m)
		if c.counted != "" && after[c.counted] != before[c.counted]+1 {
			t.Errorf("%s: refusals %v, then %v; want one more of %s", c.name, before, after, c.counted)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Drain(over); !errors.Is(err, context.Canceled) {
		t.Errorf("drain with two requests open: %v", err)
	}
	if reply := take(discovery.Request{Payload: good}, taken{}); reply.Answer != discovery.Draining {
		t.Errorf("while draining: %+v", reply)
	}
}
