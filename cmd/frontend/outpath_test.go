package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

// TestManyStreamsAtOnce has 64 streams of 1,000 tokens each come over the real plane: every token is there, once and in
// order, whoever wrote it.
func TestManyStreamsAtOnce(t *testing.T) {
	const streams, tokens = 64, 1000
	for _, c := range []struct{ plane, path string }{{transport.PlaneTCP, "auto"}, {transport.PlaneQUIC, "auto"}, {transport.PlaneTCP, "pull"}} {
		t.Run(c.plane+" "+c.path, func(t *testing.T) {
			p, _ := cluster(t, c.plane, "--out-path="+c.path)
			body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a"}],"max_tokens":%d,"stream":true}`, modelSteps, tokens)
			p.client.Timeout = 4 * patience // the race detector on a busy machine
			var clients sync.WaitGroup
			for range streams {
				clients.Go(func() {
					resp, err := p.client.Post(p.http+"/v1/chat/completions", "application/json", strings.NewReader(body))
					if err != nil {
						t.Error(err)
						return
					}
					defer resp.Body.Close()
					if err := inOrder(resp.Body, tokens); err != nil {
						t.Error(err)
					}
				})
			}
			clients.Wait()
			_, metrics := p.get(p.admin + "/metrics")
			none := strings.Contains(metrics, `laneway_frontend_event_writes_total{path="inline"} 0`+"\n")
			if none != (c.path == "pull") {
				t.Errorf("no inline writes: %v", none)
			}
			if want := fmt.Sprintf(`laneway_frontend_output_tokens_total{model="steps"} %d`, streams*tokens); !strings.Contains(metrics, want+"\n") {
				t.Errorf("/metrics lacks %s", want)
			}
			for line := range strings.Lines(metrics) {
				if strings.HasPrefix(line, "laneway_frontend_event_writes_total") {
					t.Log(strings.TrimSpace(line))
				}
			}
			p.signal()
			if err := p.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// inOrder reads a stream of numbers.
func inOrder(body io.Reader, tokens int) error {
	sc := bufio.NewScanner(body)
	sc.Buffer(nil, 64<<10)
	next, last := 0, ""
	for sc.Scan() {
		data, ok := strings.CutPrefix(sc.Text(), "data: ")
		if !ok || data == "[DONE]" {
			last = sc.Text()
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct{ Role, Content string }
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || len(chunk.Choices) != 1 {
			return fmt.Errorf("%v: %s", err, data)
		}
		if d := chunk.Choices[0].Delta; d.Content != "" {
			if d.Content != fmt.Sprint(" ", next) {
				return fmt.Errorf("token %d is %q", next, d.Content)
			}
			next++
		}
	}
	if next != tokens {
		return fmt.Errorf("%d tokens of %d, then %q", next, tokens, last)
	}
	return sc.Err()
}
