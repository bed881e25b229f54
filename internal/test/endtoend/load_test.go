//go:build linux

package endtoend

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
)

// outcome is what a client saw of one request.
type outcome struct {
	id      string
	status  int
	code    string // of the error object, "" for none
	text    string
	tokens  int
	whole   bool  // complete: every token, right, and the end mark
	broken  error // the connection or the stream broke without a word, or a token was wrong
	process string
	retries string
	began   time.Time
	took    time.Duration
}

func (o outcome) String() string {
	return fmt.Sprintf("%s: status %d, %d tokens from %q, whole %t, error %q %q, broken %v, began %s, took %v", o.id,
		o.status, o.tokens, o.process, o.whole, o.code, o.text,
		o.broken, o.began.Format("05.000"), o.took)
}

// typed says whether a request that failed did so with an error that says which.
func (o outcome) typed() bool {
	return o.broken == nil && slices.Contains([]string{"overload", "unavailable", "timeout", "lost", "internal",
		"protocol"}, o.code)
}

var serial atomic.Int64

// ask makes one request for a streamed answer of n tokens and reads it to its end. tokens, when set, is told of each
// one.
func (f *frontend) ask(ctx context.Context, n int, first func()) (o outcome) {
	o = outcome{id: fmt.Sprintf("bad-day-%d", serial.Add(1)), began: time.Now()}
	defer func() { o.took = time.Since(o.began) }()
	body := fmt.Sprintf(`{"model":"mock","messages":[{"role":"user","content":"a b c"}],"max_tokens":%d,"stream":true}`,
		n)
	req, err := http.NewRequestWithContext(ctx, "POST", f.http+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		o.broken = err
		return o
	}
	req.Header.Set("X-Request-Id", o.id)
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.w.client.Do(req)
	if err != nil {
		o.broken = err
		return o
	}
	defer resp.Body.Close()
	o.status, o.process, o.retries = resp.StatusCode, resp.Header.Get("X-Laneway-Process"),
		resp.Header.Get("X-Laneway-Retries")
	type event struct {
		Choices []struct {
			Delta  struct{ Content string } `json:"delta"`
			Finish string                   `json:"finish_reason"`
		}
		Error *struct{ Message, Code string }
	}
	fail := func(e event) { o.code, o.text = e.Error.Code, e.Error.Message }
	if resp.StatusCode != http.StatusOK {
		var e event
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Error == nil {
			o.broken = fmt.Errorf("status %d without an error object: %v", resp.StatusCode, err)
			return o
		}
		fail(e)
		return o
	}
	v := tokentext.NewVerifier(o.id)
	lines := bufio.NewScanner(resp.Body)
	finished := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			if wrong := v.Finish(o.tokens); wrong != 0 || !finished || o.tokens != n {
				o.broken = fmt.Errorf("an end mark after %d of %d tokens, %d wrong, finish reason seen: %t", o.tokens,
					n, wrong, finished)
				return o
			}
			o.whole = o.code == ""
			return o
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			o.broken = fmt.Errorf("event %q: %w", data, err)
			return o
		}
		if e.Error != nil {
			fail(e)
			return o
		}
		for _, c := range e.Choices {
			if c.Delta.Content != "" {
				v.Write([]byte(c.Delta.Content))
				if o.tokens++; o.tokens == 1 && first != nil {
					first()
				}
			}
			finished = finished || c.Finish != ""
		}
	}
	o.broken = fmt.Errorf("the stream ended without its mark after %d tokens: %v", o.tokens, lines.Err())
	return o
}

// load is requests at a steady rate in the background.
type load struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	all  []outcome
}

// startLoad asks for perSecond answers of n tokens, until end. Answers that are under way then are read to their end.
func (f *frontend) startLoad(t *testing.T, perSecond, n int) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop}
	l.wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				l.wg.Go(func() { l.add(f.ask(context.Background(), n, nil)) })
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) add(o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, o)
}

func (l *load) end() []outcome {
	l.stop()
	l.wg.Wait()
	return l.all
}

// hold opens n answers of so many tokens and returns when each has its first one. wait returns how they ended.
func (f *frontend) hold(t *testing.T, n, tokens int) (wait func() []outcome) {
	t.Helper()
	var l load
	var first sync.WaitGroup
	first.Add(n)
	for range n {
		l.wg.Go(func() {
			once := sync.OnceFunc(first.Done)
			l.add(f.ask(context.Background(), tokens, once))
			once()
		})
	}
	first.Wait()
	l.stop = func() {}
	t.Cleanup(func() { l.end() })
	return l.end
}

// allWhole fails the test when an answer is not complete.
func allWhole(t *testing.T, what string, all []outcome) {
	t.Helper()
	bad := 0
	for _, o := range all {
		if !o.whole {
			if bad++; bad <= 5 {
				t.Errorf("%s: %v", what, o)
			}
		}
	}
	if len(all) == 0 || bad > 5 {
		t.Errorf("%s: %d of %d answers are not complete", what, bad, len(all))
	}
	var longest time.Duration
	retried := 0
	for _, o := range all {
		longest = max(longest, o.took)
		if o.retries != "" {
			retried++
		}
	}
	t.Logf("%s: %d answers, the longest took %v, %d after retries", what, len(all), longest, retried)
}
