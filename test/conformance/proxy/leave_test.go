package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/test/conformance/internal/programs"
)

const slowBody = `{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":3,"stream":%t}`

// ends waits until n requests have been given up, by the worker too, and none is in flight.
func (c cluster) ends(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := programs.Metric(t, c.admin, "laneway_frontend_requests_total", `status="499"`)
		cancelled, inflight := programs.Metric(t, c.worker, "laneway_worker_cancelled_total"),
			programs.Metric(t, c.admin, "laneway_frontend_inflight_requests")
		if left == float64(n) && cancelled == float64(n) && inflight == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%v of %d clients are seen to have left, the worker was told of %v, %v requests are in flight",
				left, n, cancelled, inflight)
		}
	}
}

// running waits until the worker has a request, so that leaving is in the middle of it.
func (c cluster) running(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); programs.Metric(t, c.worker, "laneway_worker_running_requests")+
		programs.Metric(t, c.worker, "laneway_worker_waiting_requests") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker has no request")
		}
	}
}

// TestClientsThatLeave holds that the worker learns of each client that leaves, long before its first token, and that
// one that can still read gets nothing that looks like an answer.
func TestClientsThatLeave(t *testing.T) {
	curl := need(t, "curl", "curl")
	nginx := need(t, "nginx", "nginx-light")
	c := startCluster(t, nil, []string{"--time-to-first-token=10m"}) // far longer than the test's patience
	through := startNginx(t, nginx, c.url, "")
	n := 0
	for _, stream := range []bool{true, false} {
		body := fmt.Sprintf(slowBody, stream)
		for name, url := range map[string]string{"curl": c.url, "curl through nginx": through} {
			t.Run(fmt.Sprintf("%s stream=%t", name, stream), func(t *testing.T) {
				cmd := exec.Command(curl, "-sS", "-N", "-d", body, url+"/v1/chat/completions")
				var out, complaint strings.Builder
				cmd.Stdout, cmd.Stderr = &out, &complaint
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				c.running(t)
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				if n++; out.Len() > 0 {
					t.Errorf("curl has got %q", out.String())
				}
				c.ends(t, n)
			})
		}
		request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body)
		for name, after := range map[string]string{"a line break": "\r\n", "a request": request,
			"junk": strings.Repeat("x", 9000), "nothing": ""} {
			for _, half := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s behind the body, stream=%t half=%t", name, stream, half), func(t *testing.T) {
					conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if _, err := io.WriteString(conn, request+after); err != nil {
						t.Fatal(err)
					}
					c.running(t)
					if half {
						_ = conn.(*net.TCPConn).CloseWrite()
						_ = conn.SetReadDeadline(time.Now().Add(patience))
						if got, err := io.ReadAll(bufio.NewReader(conn)); len(got) > 0 ||
							!errors.Is(err, syscall.ECONNRESET) {
							t.Errorf("%v, %q, expected a reset and nothing else", err, got)
						}
					} else {
						_ = conn.Close()
					}
					n++
					c.ends(t, n)
				})
			}
		}
	}
}

// TestLongWaitBehindNginx: an nginx that cuts what is silent for 3 s, and an engine that takes 8 s to its first token.
// The control shows that the test would see a cut.
func TestLongWaitBehindNginx(t *testing.T) {
	curl, nginx := need(t, "curl", "curl"), need(t, "nginx", "nginx-light")
	flags := []string{"--time-to-first-token=8s", "--inter-token-latency=10ms"}
	ask := func(t *testing.T, url string) (status, text string) {
		t.Helper()
		out, err := exec.Command(curl, "-sS", "-N", "-D", "/dev/stderr", "-o", "/dev/stdout", "-w", "\n%{http_code}",
			"-H", "X-Request-Id: mine", "-d", fmt.Sprintf(slowBody, true), url+"/v1/chat/completions").Output()
		if err != nil {
			t.Fatalf("curl: %v", err)
		}
		i := strings.LastIndexByte(string(out), '\n')
		return string(out[i+1:]), string(out[:i])
	}
	t.Run("comments", func(t *testing.T) {
		c := startCluster(t, []string{"--sse-keepalive=1s"}, flags)
		status, text := ask(t, startNginx(t, nginx, c.url, "proxy_read_timeout 3s;"))
		if comments := strings.Count(text, ": keep-alive\n"); status != "200" || comments < 3 ||
			strings.Count(text, `"content":" `) != 3 || !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("status %s, %d comments: %s", status, comments, text)
		}
	})
	t.Run("what fails later is an event", func(t *testing.T) {
		c := startCluster(t, []string{"--sse-keepalive=1s", "--first-token-timeout=5s", "--retry-limit=0"}, flags)
		status, text := ask(t, startNginx(t, nginx, c.url, "proxy_read_timeout 3s;"))
		if status != "200" || !strings.Contains(text, `"code":"timeout"`) ||
			!strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Count(text, "data: ") != 2 {
			t.Errorf("status %s: %s", status, text)
		}
	})
	t.Run("control", func(t *testing.T) {
		c := startCluster(t, []string{"--sse-keepalive=0"}, flags)
		if status, text := ask(t, startNginx(t, nginx, c.url, "proxy_read_timeout 3s;")); status != "504" {
			t.Errorf("without comments nginx says %s: %s", status, text)
		}
	})
}
