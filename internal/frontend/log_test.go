package frontend

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"testing"
)

// lines is a log as JSON.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// TestFailuresAreLoggedWithTheirRequest holds that what a client was told can be found in the log by the id that it was
// given, and by its own.
func TestFailuresAreLoggedWithTheirRequest(t *testing.T) {
	var log lines
	b := serve(t, &scripted{}, func(c *Config) { c.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	b.backend.open = func(_ context.Context, c Call) (Stream, error) {
		end := &EndError{End: EndLost, Worker: "w-3", Text: "cable cut"}
		if c.ClientID == "early-1" {
			return nil, end
		}
		return newPlay(step{recs: []string{"a", "b"}}, step{err: end}).stream(), nil
	}
	for id, records := range map[string]float64{"early-1": 0, "late-1": 2} {
		b.do("POST", "/v1/chat/completions", chatStream, "X-Request-Id", id)
		b.untilOpen(0)
		log.mu.Lock()
		found := 0
		for d := json.NewDecoder(bytes.NewReader(log.b.Bytes())); ; {
			var line map[string]any
			if err := d.Decode(&line); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if line["client_request_id"] != id {
				continue
			}
			if line["request_id"] != b.backend.lastCall().ID {
				t.Errorf("the call had the id %s: %v", b.backend.lastCall().ID, line)
			}
			found++
			if line["level"] != "WARN" || line["model"] != "m" || line["status"] != 502.0 ||
				line["records"] != records || line["error"] != "worker w-3: lost: cable cut" {
				t.Errorf("%v", line)
			}
		}
		log.mu.Unlock()
		if found != 1 {
			t.Errorf("%d lines about request %s, want 1", found, id)
		}
	}
}
