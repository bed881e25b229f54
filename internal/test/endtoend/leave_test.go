//go:build linux

package endtoend

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// post sends a request for n tokens and returns its response; err is what the client sees when it leaves before one.
func (f *frontend) post(ctx context.Context, n int, stream bool) (*http.Response, error) {
	body := `{"model":"mock","messages":[{"role":"user","content":"a"}],"max_tokens":` + strconv.Itoa(n) +
		`,"stream":` + strconv.FormatBool(stream) + `}`
	r, err := http.NewRequestWithContext(ctx, "POST", f.http+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return f.w.client.Do(r)
}

// gone is how many requests the frontend has counted as left by their clients.
func (f *frontend) gone(t *testing.T) float64 {
	t.Helper()
	sum := 0.0
	for name, v := range f.w.metrics(t, f.admin) {
		if strings.HasPrefix(name, "laneway_frontend_requests_total{") && strings.Contains(name, `status="499"`) {
			sum += v
		}
	}
	return sum
}

// TestClientLeavesBeforeTheFirstToken: whatever a request waits for, its client's leaving ends it at once: the queue of
// its worker, its prefill, and its way to the worker, which then finds nothing to run. Each is counted once.
func TestClientLeavesBeforeTheFirstToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.startWorker(t, "slow", 1, "--max-num-seqs=1", "--time-to-first-token=1h",
		"--max-waiting-queue-length=10").ready(t)
	f := w.startFrontend(t, "--first-token-timeout=0").serving(t)
	f.sees(t, 1)
	at := func(running, waiting float64) func() bool {
		return func() bool {
			m := w.metrics(t, k.admin)
			return m["laneway_worker_running_requests"] == running && m["laneway_worker_waiting_requests"] == waiting
		}
	}
	leave := func() (left context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := f.post(ctx, 5, true); err == nil {
				resp.Body.Close()
				t.Errorf("answered with %s", resp.Status)
			}
		}()
		return func() { cancel(); <-done }
	}
	prefilling := leave()
	eventually(t, "request in its prefill", at(1, 0))
	queued := leave()
	eventually(t, "request in the queue", at(1, 1))
	queued()
	t.Logf("queued: gone %v after its client", eventually(t, "empty queue", at(1, 0)))
	prefilling()
	t.Logf("prefilling: gone %v after its client", eventually(t, "idle worker", at(0, 0)))
	eventually(t, "two that left", func() bool { return f.gone(t) == 2 })

	// The request is on its way: NATS holds it while its client leaves. The worker then has nothing to attach it to.
	if err := w.nats.Pause(); err != nil {
		t.Fatal(err)
	}
	onItsWay := leave()
	eventually(t, "open request", func() bool { return f.view(t).Open == 1 })
	onItsWay()
	eventually(t, "closed request", func() bool { return f.view(t).Open == 0 })
	if err := w.nats.Resume(); err != nil {
		t.Fatal(err)
	}
	// What comes after it has been delivered after it.
	after := leave()
	eventually(t, "a later request at the worker", at(1, 0))
	if m := w.metrics(t, k.admin); m["laneway_worker_waiting_requests"] != 0 {
		t.Error("a request that nobody waits for is in the worker's queue")
	}
	after()
	eventually(t, "four that left", func() bool { return f.gone(t) == 4 })
	f.quiet(t)
	k.quiet(t)
	if n := w.metrics(t, f.admin)["laneway_frontend_disconnected_clients_total"]; n != 4 {
		t.Errorf("%v clients have left, want 4", n)
	}
	if n := w.metrics(t, k.admin)["laneway_worker_cancelled_total"]; n != 3 {
		t.Errorf("the worker has dropped %v requests, want the 3 that it had", n)
	}
}

// TestClientLeavesAtToken10: the engine stops a few passes later, under either policy, and one cancellation is counted
// at each side.
func TestClientLeavesAtToken10(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"kill", "stop"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t)
			k := w.startWorker(t, "paced", 1, "--inter-token-latency=250ms").ready(t)
			f := w.startFrontend(t, "--on-disconnect="+policy).serving(t)
			f.sees(t, 1)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp, err := f.post(ctx, 256, true)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for tokens := 0; tokens < 10 && lines.Scan(); {
				if strings.Contains(lines.Text(), `"content":`) && !strings.Contains(lines.Text(), `"role"`) {
					tokens++
				}
			}
			leave()
			eventually(t, "idle worker",
				func() bool { return w.metrics(t, k.admin)["laneway_worker_running_requests"] == 0 })
			f.quiet(t)
			k.quiet(t)
			made := w.metrics(t, k.admin)[`laneway_plane_records_total{direction="out",plane="tcp"}`]
			t.Logf("%v records were made", made)
			if made < 10 || made > 14 {
				t.Errorf("%v records were made, want 10 to 14", made)
			}
			m := w.metrics(t, f.admin)
			if f.gone(t) != 1 || m["laneway_frontend_disconnected_clients_total"] != 1 ||
				m[`laneway_frontend_output_tokens_total{model="mock"}`] > made {
				t.Errorf("left %v, disconnected %v, tokens %v", f.gone(t),
					m["laneway_frontend_disconnected_clients_total"],
					m[`laneway_frontend_output_tokens_total{model="mock"}`])
			}
			want := map[string]float64{"kill": 1, "stop": 0}[policy] // told to stop, it completes with its trailer
			if n := w.metrics(t, k.admin)["laneway_worker_cancelled_total"]; n != want {
				t.Errorf("the worker has dropped %v requests, want %v", n, want)
			}
			if n := m[`laneway_streams_ended_total{end="complete"}`]; n != 1-want {
				t.Errorf("%v streams are complete, want %v: a worker that is told to stop has its last output, one "+
					"that is killed has not", n, 1-want)
			}
		})
	}
}

// TestWorkerGoneAfterToken100: a connection that closes in mid-answer, without an end mark, is an error event to a
// client that streams, never a clean finish, and an HTTP error to one that does not.
func TestWorkerGoneAfterToken100(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{true, false} {
		w := newWorld(t)
		k := w.startWorker(t, "mortal", 1, "--inter-token-latency=2ms").ready(t)
		f := w.startFrontend(t).serving(t)
		f.sees(t, 1)
		ctx, over := context.WithCancel(t.Context())
		var killer sync.WaitGroup
		killer.Go(func() {
			for f.tokens() < 100 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			k.signal(syscall.SIGKILL)
		})
		resp, err := f.post(t.Context(), 1_000_000, stream)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		over()
		killer.Wait()
		if err != nil {
			t.Fatal(err)
		}
		text := string(body)
		if strings.Contains(text, `"finish_reason":"`) || !strings.Contains(text, `"code":"lost"`) {
			t.Errorf("stream %t: %s", stream, text[max(0, len(text)-500):])
		}
		if stream {
			events := strings.Split(strings.TrimSpace(text), "\n\n")
			last := len(events) - 1
			if resp.StatusCode != 200 || events[last] != "data: [DONE]" || !strings.HasPrefix(events[last-1],
				`data: {"error":`) || last < 100 {
				t.Errorf("%d, %d events, the last: %q", resp.StatusCode, last+1, events[max(0, last-1):])
			}
		} else {
			var e struct{ Error struct{ Type string } }
			if err := json.Unmarshal(body, &e); resp.StatusCode != http.StatusBadGateway || err != nil ||
				e.Error.Type != "upstream_error" {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		}
		f.quiet(t)
	}
}

// tokens is how many the frontend has got; 0 where it cannot be asked.
func (f *frontend) tokens() float64 {
	resp, err := f.w.client.Get(f.admin + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	n := 0.0
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), `laneway_plane_records_total{direction="in",plane="tcp"} `); ok {
			n, _ = strconv.ParseFloat(v, 64)
		}
	}
	return n
}
