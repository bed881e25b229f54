package report_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/loadgen"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// scripted answers with tokens after delays that vary, and with every kind of end: complete, refused, failed in
// mid-stream, cut off, empty.
func scripted(t *testing.T) *httptest.Server {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"mock"}]}`)
			return
		}
		var body struct {
			Max int `json:"max_tokens"`
		}
		b, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(b, &body) != nil {
			http.Error(w, "bad body", http.StatusBadRequest)
			return
		}
		i := int(n.Add(1))
		if i%11 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"type":"service_unavailable","message":"x"}}`)
			return
		}
		data := func(s string) {
			fmt.Fprintf(w, "data: %s\n\n", s)
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Laneway-Process", fmt.Sprint("worker-", i%3))
		data(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`)
		tokens := body.Max
		if i%13 == 0 {
			tokens = 0
		}
		text := tokentext.New(r.Header.Get("X-Request-Id"))
		time.Sleep(time.Duration(5+i*7%23) * time.Millisecond)
		for k := range tokens {
			if i%17 == 0 && k == 2 {
				data(`{"error":{"type":"upstream_error","message":"x"}}`)
				return
			}
			q, err := json.Marshal(string(text.Append(nil, k)))
			if err != nil {
				return
			}
			data(`{"choices":[{"delta":{"content":` + string(q) + `}}]}`)
			time.Sleep(time.Duration(1+i%4) * time.Millisecond)
		}
		data(`{"choices":[{"delta":{},"finish_reason":"stop"}]}`)
		data(fmt.Sprintf(`{"choices":[],"usage":{"completion_tokens":%d}}`, tokens))
		data("[DONE]")
	}))
	t.Cleanup(s.Close)
	return s
}

// TestNumbersAreThoseOfTheRows makes a real run and computes run.json's figures a second time from requests.jsonl, by
// other code.
func TestNumbersAreThoseOfTheRows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	run, err := loadgen.Run(t.Context(), loadgen.Config{URL: redact.New(scripted(t).URL), Dir: dir, Concurrency: 8,
		Requests: 150, Warmup: 8, ISL: 4, OSL: 6,
		SteadyAfter: 150 * time.Millisecond, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if run.Raw.Errors < 10 || run.Raw.Requests < 100 || run.Steady == nil || run.Steady.Requests < 20 ||
		run.Steady.Requests >= run.Raw.Requests {
		t.Fatalf("the run is not what the test needs: raw %d + %d, steady %+v", run.Raw.Requests, run.Raw.Errors,
			run.Steady)
	}
	bad, compared, err := runtest.Disagreements(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bad {
		t.Error(line)
	}
	if compared < 90 {
		t.Errorf("%d figures compared, expected both windows with 4 distributions of 9 each", compared)
	}
	if err := report.Check(dir); err != nil {
		t.Error(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, report.HTMLFile))
	if err != nil || !strings.Contains(string(page), fmt.Sprintf(`<data data-f="raw.errors" value="%d">`,
		run.Raw.Errors)) {
		t.Errorf("report.html beside run.json: %v", err)
	}

	// The comparison can fail: any figure that is moved is noticed.
	run.Raw.TTFT.P99 *= 1.0001
	run.Steady.Errors++
	if err := report.WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	if bad, _, err = runtest.Disagreements(dir); err != nil || len(bad) != 2 {
		t.Errorf("two wrong figures: %v %v", bad, err)
	}
}
