package frontend

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counting counts how often it is asked for its models.
type counting struct {
	scripted
	asked atomic.Int64
}

func (b *counting) Models() []string { b.asked.Add(1); return b.scripted.Models() }

// TestUnknownModelsDoNotAsk: requests for a model that is not there share one look at the backend, and one that comes
// is soon found.
func TestUnknownModelsDoNotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &counting{scripted: scripted{models: []string{"m"}}}
		s := &Server{cfg: Config{Backend: b}}
		for range 1000 {
			if e, label := s.checkModel("x"); e == nil || e.Status != 404 || label != labelNotFound {
				t.Fatalf("%v %q", e, label)
			}
		}
		if n := b.asked.Load(); n != 1 {
			t.Errorf("the backend was asked %d times for 1000 requests at one moment, want 1", n)
		}
		b.models = []string{"m", "x"}
		time.Sleep(missFresh + 1)
		if e, _ := s.checkModel("x"); e != nil {
			t.Errorf("a model that came %v ago: %v", missFresh, e)
		}
		if n := b.asked.Load(); n != 2 {
			t.Errorf("asked %d times, want 2", n)
		}
	})
}

// TestCompressedBody: what is compressed is not called bad JSON.
func TestCompressedBody(t *testing.T) {
	b := serve(t, failing(errBoom), nil)
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		a := b.do("POST", path, "\x1f\x8b\x08 and so on", "Content-Encoding", "gzip")
		typ, code, _, msg := errorOf(t, a.body)
		if a.status != 415 || typ != "invalid_request_error" || code != "unsupported_content_encoding" ||
			!strings.Contains(msg, `"gzip"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// it got as far as the backend
	if a := b.do("POST", "/v1/chat/completions", chatBody, "Content-Encoding", "identity"); a.status != 500 {
		t.Errorf("identity: %d %s", a.status, a.body)
	}
}
