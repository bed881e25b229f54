// Package proxy runs the real programs behind a real nginx whose proxy settings are the defaults: answers are buffered
// unless they ask not to be.
package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/test/conformance/internal/programs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = time.Minute
	tokens   = 6
	pace     = 400 * time.Millisecond // between two tokens
)

// TestBehindNginx holds that each token passes nginx before the next is made. The control shows that the test would see
// a buffered answer: there nginx is told to take no notice of what the answer asks for.
func TestBehindNginx(t *testing.T) {
	bin := need(t, "nginx", "nginx-light")
	front := startCluster(t, nil, []string{"--time-to-first-token=10ms", "--inter-token-latency=" + pace.String()}).url
	asked := startNginx(t, bin, front, "")
	ignoring := startNginx(t, bin, front, "proxy_ignore_headers X-Accel-Buffering;")
	direct := arrivals(t, front)
	for _, c := range []struct {
		name, url string
		spread    bool
	}{{"direct", front, true}, {"nginx", asked, true}, {"nginx that buffers", ignoring, false}} {
		t.Run(c.name, func(t *testing.T) {
			at := direct
			if c.url != front {
				at = arrivals(t, c.url)
			}
			if len(at) != tokens {
				t.Fatalf("%d tokens came, expected %d", len(at), tokens)
			}
			took := at[tokens-1] - at[0]
			t.Logf("first token after %v, the others within %v", at[0], took)
			// Four or five paces lie between the first and the last: most of them must be seen, or nothing when they
			// come in one piece.
			if spread := took > tokens/2*pace; spread != c.spread {
				t.Errorf("the tokens came within %v: one by one is %t, expected %t", took, spread, c.spread)
			}
		})
	}
}

// need finds a program that the tests do not build.
func need(t *testing.T, name, debian string) string {
	t.Helper()
	bin, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: install %s (Debian: %s)", err, name, debian)
		}
		t.Skipf("%v: the way through %s is not tested", err, name)
	}
	return bin
}

// cluster is a frontend and a worker.
type cluster struct{ url, admin, worker string }

// startCluster starts a frontend and a worker with flags of their own, and returns once a request can be answered.
func startCluster(t *testing.T, frontFlags, workerFlags []string) cluster {
	t.Helper()
	pr, err := programs.Build()
	if err != nil {
		t.Fatal(err)
	}
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	common := []string{"--admin-addr=127.0.0.1:0", "--etcd-endpoints=" + strings.Join(etcd.Endpoints(), ","),
		"--nats-url=" + nats.URL()}
	worker := programs.Start(t, "worker", pr.Worker, slices.Concat(common, []string{"--model=m", "--num-workers=1",
		"--bind-addr=127.0.0.1:0"}, workerFlags)...)
	c := cluster{worker: worker.Says(t, "ready", "admin")}
	front := programs.Start(t, "frontend", pr.Frontend, slices.Concat(common, []string{"--http-addr=127.0.0.1:0"},
		frontFlags)...)
	c.url, c.admin = front.Says(t, "serving", "http"), front.Says(t, "serving", "admin")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get(c.url + "/v1/models")
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if strings.Contains(string(b), `"m"`) {
				return c
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no worker is seen by the frontend: %v", err)
		}
	}
}

// startNginx starts an nginx before the frontend, with the defaults of its proxy module and extra.
func startNginx(t *testing.T, bin, front, extra string) string {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	conf := filepath.Join(dir, "nginx.conf")
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	text := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log stderr;\nevents {}\nhttp { "+
		"access_log off;\n%[2]s"+
		"server { listen %[3]s; location / { proxy_pass %[4]s; %[5]s } } }\n", dir, temp, addr, front, extra)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	programs.Start(t, "nginx", bin, "-p", dir, "-c", conf, "-e", "stderr")
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			return "http://" + addr
		}
		if time.Now().After(end) {
			t.Fatalf("nginx does not listen: %v", err)
		}
	}
}

// arrivals asks for a streamed answer and says when each token came, counted from the request.
func arrivals(t *testing.T, url string) []time.Duration {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":%d,"stream":true}`,
		tokens)
	began := time.Now()
	resp, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var at []time.Duration
	done := false
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		switch line := in.Text(); {
		case line == "data: [DONE]":
			done = true
		case strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`):
			at = append(at, time.Since(began))
		}
	}
	if !done {
		t.Errorf("no [DONE] from %s: status %d", url, resp.StatusCode)
	}
	return at
}
