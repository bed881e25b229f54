package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/frontend/outpath"
	"github.com/laneway-ai/laneway/internal/frontend/outpath/outpathtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/transport"
)

// TestManyStreamsAtOnce has 64 streams of 1,000 tokens each come over the real plane: every token is there, once and in
// order, whoever wrote it.
func TestManyStreamsAtOnce(t *testing.T) {
	const streams, tokens = 64, 1000
	auto := "inline"
	if ringsAllowed() {
		auto = "io_uring"
	}
	for _, c := range []struct{ plane, path, inForce string }{{transport.PlaneTCP, "auto", auto},
		{transport.PlaneQUIC, "auto", auto},
		{transport.PlaneTCP, "inline", "inline"}, {transport.PlaneTCP, "io_uring", "io_uring"},
		{transport.PlaneTCP, "pull", "pull"}} {
		t.Run(c.plane+" "+c.path, func(t *testing.T) {
			if c.path == "io_uring" && auto != c.path {
				if os.Getenv("CI") == "true" {
					t.Fatal("this kernel does not let this process use io_uring: CI has to run it")
				}
				t.Skip("this kernel does not let this process use io_uring")
			}
			p, _ := cluster(t, c.plane, "--out-path="+c.path)
			if path, _ := p.outPath(); path != c.inForce {
				t.Errorf("/debug/plane says that the out path is %q, expected %q", path, c.inForce)
			}
			body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"a"}],"max_tokens":%d,"stream":true}`,
				modelSteps, tokens)
			p.client.Timeout = 4 * patience // the race detector on a busy machine
			var clients sync.WaitGroup
			for range streams {
				clients.Go(func() {
					resp, err := p.client.Post(p.http+"/v1/chat/completions", "application/json",
						strings.NewReader(body))
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
			for _, path := range []string{"inline", "io_uring"} { // pull there is always: the first token
				none := strings.Contains(metrics, fmt.Sprintf("laneway_frontend_event_writes_total{path=%q} 0\n", path))
				if none != (path != c.inForce) {
					t.Errorf("no %s writes: %v", path, none)
				}
			}
			if want := fmt.Sprintf(`laneway_frontend_output_tokens_total{model="steps"} %d`,
				streams*tokens); !strings.Contains(metrics, want+"\n") {
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

// outPath is what /debug/plane says of it.
func (p *program) outPath() (inForce, noRing string) {
	p.t.Helper()
	_, body := p.get(p.admin + "/debug/plane")
	var v debugView
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		p.t.Fatal(err)
	}
	return v.OutPath.InForce, v.OutPath.NoRing
}

func ringsAllowed() bool {
	var pool outpath.Batches
	defer pool.Close()
	return pool.Probe() == nil
}

// TestOutPathInASandbox runs the program in a child to which the kernel refuses io_uring: auto serves without, io_uring
// is an error that names the flag.
func TestOutPathInASandbox(t *testing.T) {
	const child = "LANEWAY_TEST_SANDBOX"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestOutPathInASandbox$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := outpathtest.ForbidRings(); err != nil {
		t.Fatal(err)
	}
	p := start(t)
	if path, why := p.outPath(); path != "inline" || why == "" {
		t.Errorf("/debug/plane says %q, %q", path, why)
	}
	p.plane.records <- " a"
	p.plane.records <- " b"
	close(p.plane.records)
	if body, err := io.ReadAll(p.post(streaming).Body); err != nil || !strings.HasSuffix(string(body),
		"data: [DONE]\n\n") {
		t.Errorf("%s %v", body, err)
	}
	p.signal()
	if err := p.end(); err != nil {
		t.Error(err)
	}
	played := newPlayedPlane()
	err := run(t.Context(), slog.New(slog.DiscardHandler), parse(t, "--out-path=io_uring"),
		func(context.Context, *slog.Logger, settings, prometheus.Registerer) (plane, error) {
			return openPlane{played}, nil
		})
	var fe *cli.FlagError
	if !errors.As(err, &fe) || fe.Flag != "out-path" || !errors.Is(err, frontend.ErrNoRing) ||
		!strings.Contains(err.Error(), "--out-path auto") {
		t.Errorf("--out-path=io_uring: %v", err)
	}
	select {
	case <-played.closed:
	default:
		t.Error("the plane was not closed")
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
