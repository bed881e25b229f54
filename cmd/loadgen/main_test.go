package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// asProgram makes the test binary the program itself, for what only a process of its own can show.
const asProgram = "LGTEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// serve answers with osl tokens; fault says for each request, by its order, what goes wrong.
func serve(t *testing.T, pause time.Duration, fault func(n int) string) *httptest.Server {
	t.Helper()
	requests := make(chan int, 1)
	requests <- 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"mock"}]}`)
			return
		}
		n := <-requests
		requests <- n + 1
		var body struct {
			Max   int    `json:"max_tokens"`
			Model string `json:"model"`
		}
		b, _ := io.ReadAll(r.Body)
		if json.Unmarshal(b, &body) != nil || body.Model != "mock" {
			http.Error(w, "bad body", 400)
			return
		}
		what := ""
		if fault != nil {
			what = fault(n)
		}
		if what == "status" {
			w.WriteHeader(503)
			fmt.Fprint(w, `{"error":{"type":"service_unavailable"}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Laneway-Worker", "w")
		g := tokentext.New(r.Header.Get("X-Request-Id"))
		for i := range body.Max {
			if what == "wrong" && i == 1 {
				continue
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", g.Append(nil, i))
			w.(http.Flusher).Flush()
			select {
			case <-time.After(pause):
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n")
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", body.Max)
	}))
	t.Cleanup(s.Close)
	return s
}

// call runs the program in this process.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errw bytes.Buffer
	app := newApp()
	app.Env, app.Stdout, app.Stderr = nil, &out, &errw
	code = run(args, app)
	return code, out.String(), errw.String()
}

func TestExitCodes(t *testing.T) {
	good := serve(t, 0, nil)
	wrong := serve(t, 0, func(n int) string { return map[bool]string{true: "wrong"}[n == 3] })
	failing := serve(t, 0, func(n int) string { return map[bool]string{true: "status"}[n == 3] })
	common := []string{"-c", "2", "-n", "20", "--osl", "4", "--isl", "3", "--warmup-request-count", "0", "--ui", "none"}
	info := filepath.Join(t.TempDir(), "info.json")
	if err := os.WriteFile(info, []byte(`{"config":{"response_plane":"quic"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string // in stderr, or in stdout when the code is 0
	}{
		{"fine", []string{"--url", good.URL}, 0, "TTFT p50/p90/p99"},
		{"threshold kept", []string{"--url", good.URL, "--threshold", "ttft_p99<60s", "--threshold", "errors<=0"}, 0,
			"20 verified"},
		{"threshold missed", []string{"--url", good.URL, "--threshold", "ttft_p99<1ns"}, 3,
			"threshold ttft_p99<1ns missed"},
		{"threshold not measured", []string{"--url", good.URL, "--threshold", "frontend_cpu_ms_per_request<1"}, 3,
			"not measured"},
		{"wrong token", []string{"--url", wrong.URL}, 2, "1 wrong tokens"},
		{"errors", []string{"--url", failing.URL}, 2, "1 of 20 requests failed"},
		{"errors allowed",
			[]string{"--url", serve(t, 0, func(n int) string { return map[bool]string{true: "status"}[n == 3] }).URL,
				"--max-error-rate", "0.05"}, 0, "service_unavailable 1"},
		{"no proof", []string{"--url", good.URL, "--run-info", info}, 2, "no proof of transit"},
		{"no server", []string{"--url", "http://127.0.0.1:1"}, 1, "is the server running there?"},
		{"bad flags", []string{"--url", "nonsense", "--goodput", "x", "--threshold", "y"}, 1, "--threshold"},
		{"no info file", []string{"--url", good.URL, "--run-info", info + "x"}, 1, "--run-info"},
		{"a client that does not speak TLS", []string{"--url", "https://127.0.0.1:1", "--client", "io_uring"}, 1,
			"--client io_uring does not speak TLS"},
		{"io_uring off", []string{"--url", good.URL, "--client", "epoll"}, 0, "load generator: epoll client"},
		{"too many ports", []string{"--url", good.URL, "-c", "200000"}, 1, "200000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			args := append(append([]string{}, common...), append(c.args, "--artifact-dir", dir)...)
			code, stdout, stderr := call(t, args...)
			text := stderr
			if c.code == 0 {
				text = stdout
			}
			if code != c.code || !strings.Contains(text, c.says) {
				t.Fatalf("exit %d, want %d and %q\nstdout:\n%s\nstderr:\n%s", code, c.code, c.says, stdout, stderr)
			}
			if code == 1 {
				if _, err := os.Stat(dir); err == nil {
					t.Error("a run that was refused left a directory")
				}
				return
			}
			if strings.ContainsAny(stdout+stderr, "\x1b\r") {
				t.Error("control codes outside a terminal")
			}
			r, err := report.Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			if r.Config["concurrency"] != 2.0 || r.Config["osl"] != 4.0 || r.Config["arrival_pattern"] != "constant" ||
				r.Config["model"] != "mock" {
				t.Errorf("config %v", r.Config)
			}
		})
	}
}

func TestSecretsStayOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	code, stdout, stderr := call(t, "--url", serve(t, 0, nil).URL, "-n", "2", "--osl", "2", "--isl", "2", "--header",
		"Authorization: Bearer s3cret", "--artifact-dir", dir)
	b, err := os.ReadFile(filepath.Join(dir, report.RunFile))
	if code != 0 || err != nil || strings.Contains(string(b)+stdout+stderr, "s3cret") {
		t.Errorf("exit %d, %v\n%s%s%s", code, err, b, stdout, stderr)
	}
}

// TestSecretsStayHere: the key of a server, in its URL, a header or a file, is in no output and no file of the run.
func TestSecretsStayHere(t *testing.T) {
	s := serve(t, 0, nil)
	gone := httptest.NewServer(nil)
	gone.Close() // its metrics cannot be read
	dir := filepath.Join(t.TempDir(), "run")
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("Authorization: Bearer secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(url, path string) string {
		return strings.Replace(url, "://", "://svc:secret@", 1) + path + "?api_key=secret"
	}
	code, stdout, stderr := call(t, "--url", with(s.URL, "/v1/chat/completions"), "--metrics-url",
		with(gone.URL, "/metrics"), "--metrics-url", with(s.URL, "/metrics"),
		"--header-file", keys, "-c", "2", "-n", "20", "--osl", "4", "--isl", "3", "--artifact-dir", dir)
	if code != 0 || !strings.Contains(stderr, "metrics could not be read") ||
		!strings.Contains(stderr, "/metrics?api_key=xxxxx") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	outputs := map[string]string{"standard output": stdout, "standard error": stderr}
	for _, name := range []string{"run.json", "report.html", "requests.jsonl", "timeseries.csv"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		outputs[name] = string(b)
	}
	for name, text := range outputs {
		if i := strings.Index(text, "secret"); i >= 0 {
			t.Errorf("%s: ...%s", name, text[max(0, i-100):min(len(text), i+20)])
		}
	}
	if !strings.Contains(outputs["run.json"], `"url": "http://xxxxx@`) {
		t.Errorf("run.json does not name the server: %.2000s", outputs["run.json"])
	}
	for _, url := range []string{"ftp://svc:secret@h", "svc:secret@h:1", with("http://127.0.0.1:1", ""),
		with("http://:1", "")} {
		if code, stdout, stderr := call(t, "--url", url, "--artifact-dir",
			filepath.Join(t.TempDir(), "none")); code != 1 || strings.Contains(stdout+stderr, "secret") {
			t.Errorf("%s: exit code %d\n%s%s", url, code, stdout, stderr)
		}
	}
}

// TestInterrupt ends a run with a signal: a partial report, exit code 1. A signal that comes twice, as from GNU
// timeout, is one.
func TestInterrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) { interrupt(t, sig) })
	}
}

func interrupt(t *testing.T, sig syscall.Signal) {
	started := make(chan struct{}, 100)
	s := serve(t, 20*time.Millisecond, func(n int) string {
		select {
		case started <- struct{}{}:
		default:
		}
		return ""
	})
	dir := filepath.Join(t.TempDir(), "run")
	cmd := exec.Command(os.Args[0], "--url", s.URL, "-c", "2", "-n", "100000", "--osl", "5", "--isl", "2",
		"--artifact-dir", dir)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		<-started
	}
	for range 2 {
		if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	r, err := report.Read(dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !r.Marked(report.MarkPartial) || r.Raw.Requests == 0 || r.Raw.Errors != 0 || !strings.Contains(out.String(),
		"partial") {
		t.Errorf("marks %v raw %+v\n%s", r.Marks, r.Raw, out.String())
	}
	if rows, bad, err := report.ReadRows(dir); err != nil || len(bad) > 0 || len(rows) != r.Raw.Requests+r.Raw.Canceled+
		r.Warmup.Requests {
		t.Errorf("%d rows, %v %v", len(rows), bad, err)
	}
}
