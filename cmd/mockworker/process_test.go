package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// patience bounds every wait of these tests; the machine may be busy.
const patience = 30 * time.Second

// servers are the etcd and NATS servers of a test.
type servers struct{ etcd, nats string }

func startServers(t *testing.T) servers {
	t.Helper()
	return servers{etcd: strings.Join(devtest.Etcd(t).Endpoints(), ","), nats: devtest.NATS(t).URL()}
}

// startProcess runs a worker process inside the test, as main does.
func startProcess(t *testing.T, args ...string) (p *process, leave func()) {
	t.Helper()
	s, err := parse(t, append([]string{"--bind-addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0", "--server-endpoints=2",
		"--drain-grace=0s"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	p = newProcess(s, slog.New(slog.DiscardHandler))
	var once sync.Once
	leave = func() {
		once.Do(func() {
			if p.registration != nil {
				p.leave()
			}
			p.close()
		})
	}
	t.Cleanup(leave)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.build(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.start(ctx); err != nil {
		t.Fatal(err)
	}
	return p, leave
}

// startFrontend makes a frontend on one plane that follows the registry, and waits until it can reach n workers.
func startFrontend(t *testing.T, sv servers, plane string, n int) *responseplane.Frontend {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s, err := parse(t, "--response-plane="+plane)
	if err != nil {
		t.Fatal(err)
	}
	trs, err := s.plane.Transports(id, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	reg, err := etcd.New(t.Context(), etcd.Config{Endpoints: []string{sv.etcd}})
	if err != nil {
		t.Fatal(err)
	}
	del, err := nats.New(t.Context(), nats.Config{URL: sv.nats})
	if err != nil {
		t.Fatal(err)
	}
	f, err := responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id, Name: "f", Transports: trs,
		Deliverer: del})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.Follow(ctx, reg); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("follow: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		f.Close()
		del.Close()
		reg.Close()
		for _, tr := range trs {
			tr.Close()
		}
	})
	eventually(t, fmt.Sprintf("%d reachable workers", n), func() bool {
		up := 0
		for _, w := range f.Workers() {
			if w.Reachable {
				up++
			}
		}
		return up == n
	})
	return f
}

// eventually waits until ok, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("after %v: no %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func open(ctx context.Context, f *responseplane.Frontend, id string, tokens int) (*responseplane.Response, error) {
	payload, err := mockproto.Request{ID: id, Model: "mock", Kind: mockproto.KindChat, PromptTokens: 7,
		MaxTokens: tokens}.Encode()
	if err != nil {
		return nil, err
	}
	return f.Open(ctx, responseplane.Request{ID: id, Model: "mock", Payload: payload})
}

// readAll reads a response to its end and verifies every token.
func readAll(ctx context.Context, r *responseplane.Response, id string, tokens int) error {
	v := tokentext.NewVerifier(id)
	n := 0
	for {
		rec, err := r.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%s after %d tokens: %w", id, n, err)
		}
		v.Write(rec)
		n++
	}
	tr, err := mockproto.DecodeTrailer(r.Trailer())
	if err != nil {
		return err
	}
	if wrong := v.Finish(tr.CompletionTokens); n != tokens || wrong != 0 || tr.CompletionTokens != tokens ||
		tr.PromptTokens != 7 || tr.FinishReason != mockproto.FinishLength {
		return fmt.Errorf("%s: %d records, %d wrong tokens, trailer %+v; want %d", id, n, wrong, tr, tokens)
	}
	return nil
}

func httpGet(t *testing.T, p *process, path string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Get("http://" + p.admin.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestEndToEnd: registry, delivery, plane and engines, all real; every token verified.
func TestEndToEnd(t *testing.T) {
	sv := startServers(t)
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC} {
		t.Run(plane, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			p, leave := startProcess(t, "--etcd-endpoints="+sv.etcd, "--nats-url="+sv.nats, "--response-plane="+plane,
				"--num-workers=4", "--name=w-"+plane,
				"--inter-token-latency=20ms", "--time-to-first-token=5ms")
			f := startFrontend(t, sv, plane, 4)

			const requests, tokens = 64, 30
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() {
					id := fmt.Sprintf("%s-%d", plane, i)
					r, err := open(ctx, f, id, tokens)
					if err != nil {
						t.Errorf("open %s: %v", id, err)
						return
					}
					defer r.Close()
					if err := readAll(ctx, r, id, tokens); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()

			// A response that is killed frees its place in the engine, and a metric says so.
			r, err := open(ctx, f, "killed", 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			r.Kill()
			began := time.Now()
			eventually(t, "cancelled request", func() bool {
				running, waiting := p.load()
				return running+waiting == 0
			})
			t.Logf("%s: the engine dropped a killed request after %v, passes are 20ms apart", plane, time.Since(began))
			r.Close()

			if code, body := httpGet(t, p, "/readyz"); code != 200 {
				t.Errorf("readyz: %d %s", code, body)
			}
			_, metrics := httpGet(t, p, "/metrics")
			for _, want := range []string{
				"laneway_worker_cancelled_total 1", "laneway_worker_running_requests 0",
				fmt.Sprintf("laneway_worker_time_to_first_response_seconds_count %d", requests+1),
			} {
				if !strings.Contains(metrics, "\n"+want+"\n") {
					t.Errorf("/metrics lacks %q", want)
				}
			}
			_, debug := httpGet(t, p, "/debug/plane")
			for _, want := range []string{`"process": "w-` + plane + `"`, `"w-` + plane + `-3"`, `"recv_granted"`,
				`"engines"`, `"plane": "` + plane + `"`, `"name": "shrink-threshold"`, `"in_force": "`} {
				if !strings.Contains(debug, want) {
					t.Errorf("/debug/plane lacks %q:\n%s", want, debug)
				}
			}
			var view struct{ Settings []planeflags.Setting }
			if err := json.Unmarshal([]byte(debug), &view); err != nil || len(view.Settings) < 20 {
				t.Errorf("%d settings, %v", len(view.Settings), err)
			}
			for _, s := range view.Settings {
				if line := fmt.Sprintf("\nlaneway_setting_info{asked=%q,in_force=%q,setting=%q} 1\n", s.Asked,
					s.InForce, s.Name); !strings.Contains(metrics, line) {
					t.Errorf("/metrics lacks what /debug/plane says: %s", line)
				}
			}
			_, page := httpGet(t, p, "/debug/plane?format=html")
			for _, want := range []string{"Laneway worker process w-" + plane, "w-" + plane + "-3</td>",
				"ended as complete", "shrink-threshold"} {
				if !strings.Contains(page, want) {
					t.Errorf("the page of /debug/plane lacks %q:\n%s", want, page)
				}
			}
			if code, text := httpGet(t, p, "/debug/plane?format=xml"); code != http.StatusBadRequest ||
				!strings.Contains(text, "format=html") {
				t.Errorf("an unknown format: %d %s", code, text)
			}

			// Leaving: what is open ends as it should, what is new finds no worker.
			slow, err := open(ctx, f, "slow", 40)
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			left := make(chan struct{})
			go func() { defer close(left); leave() }() // joined below
			if err := readAll(ctx, slow, "slow", 40); err != nil {
				t.Error(err)
			}
			select {
			case <-left:
			case <-ctx.Done():
				t.Fatal("the process does not end")
			}
			if _, err := open(ctx, f, "late", 1); !errors.Is(err, responseplane.ErrUnavailable) {
				t.Errorf("a request after the worker left: %v, want unavailable", err)
			}
		})
	}
}

// TestDrainTimeout: what is still open then ends as failed, not as lost.
func TestDrainTimeout(t *testing.T) {
	sv := startServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, leave := startProcess(t, "--etcd-endpoints="+sv.etcd, "--nats-url="+sv.nats, "--response-plane=tcp",
		"--num-workers=1", "--drain-timeout=100ms",
		"--inter-token-latency=20ms", "--time-to-first-token=5ms")
	f := startFrontend(t, sv, "tcp", 1)
	r, err := open(ctx, f, "endless", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	left := make(chan struct{})
	go func() { defer close(left); leave() }() // joined below
	for err == nil {
		_, err = r.Next(ctx)
	}
	var e *responseplane.Error
	if !errors.As(err, &e) || !errors.Is(err, responseplane.ErrFailed) || !strings.Contains(e.Text, "shutting down") {
		t.Errorf("the open response ended with %v", err)
	}
	<-left
}

// TestSetUpErrors: one clear error that names the thing, and nothing left running (TestMain looks).
func TestSetUpErrors(t *testing.T) {
	sv := startServers(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	free, err := net.Listen("tcp", "127.0.0.1:0") // its port will refuse
	if err != nil {
		t.Fatal(err)
	}
	refuses := free.Addr().String()
	free.Close()
	ok := []string{"--etcd-endpoints=" + sv.etcd, "--nats-url=" + sv.nats, "--response-plane=tcp", "--num-workers=1",
		"--admin-addr=127.0.0.1:0"}
	for _, c := range []struct {
		arg  string
		want []string
		is   error
	}{
		{"--etcd-endpoints=http://" + refuses, []string{"etcd", refuses}, nil},
		{"--nats-url=nats://" + refuses, []string{"nats", refuses}, nil},
		{"--admin-addr=" + addr, []string{"--admin-addr", addr}, syscall.EADDRINUSE},
		{"--bind-addr=" + addr, []string{"--bind-addr", addr}, syscall.EADDRINUSE},
	} {
		s, err := parse(t, append(ok, c.arg)...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = run(ctx, s, slog.New(slog.DiscardHandler))
		cancel()
		if err == nil || strings.Contains(err.Error(), "\n") || (c.is != nil && !errors.Is(err, c.is)) {
			t.Errorf("%s: %v", c.arg, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(strings.ToLower(err.Error()), w) {
				t.Errorf("%s: the error does not name %q: %v", c.arg, w, err)
			}
		}
	}
}

// TestSignalWhileStarting: a process that is told to stop before it is ready stops without an error.
func TestSignalWhileStarting(t *testing.T) {
	sv := startServers(t)
	s, err := parse(t, "--etcd-endpoints="+sv.etcd, "--nats-url="+sv.nats, "--response-plane=tcp", "--num-workers=1",
		"--startup-duration=1h", "--admin-addr=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := run(ctx, s, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}

// TestSlowConsumer: a consumer that reads nothing parks its own response only, and loses none of it.
func TestSlowConsumer(t *testing.T) {
	sv := startServers(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, _ := startProcess(t, "--etcd-endpoints="+sv.etcd, "--nats-url="+sv.nats, "--response-plane=tcp",
		"--num-workers=1", "--token-bytes=4096",
		"--inter-token-latency=5ms", "--time-to-first-token=5ms")
	f := startFrontend(t, sv, "tcp", 1)
	slow, err := open(ctx, f, "slow", 100) // 400 KiB, its window has 64 KiB
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	eventually(t, "full window", func() bool { return p.worker.Stats().WindowStalls > 0 })
	other, err := open(ctx, f, "other", 14)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := readAll(ctx, other, "other", 14); err != nil {
		t.Error(err)
	}
	if err := readAll(ctx, slow, "slow", 100); err != nil {
		t.Error(err)
	}
}
