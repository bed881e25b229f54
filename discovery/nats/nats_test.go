package nats

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	natsio "github.com/nats-io/nats.go"
	natsmicro "github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg Config) *Deliverer {
	t.Helper()
	d, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), discoverytest.Wait)
	t.Cleanup(cancel)
	return ctx
}

func accept(context.Context, discovery.Request) discovery.Reply {
	return discovery.Reply{Answer: discovery.Accepted}
}

func TestDeliverer(t *testing.T) {
	const maxPayload, queue = 64 << 10, 16
	srv := devtest.NATS(t, devserver.Options{MaxPayload: maxPayload})
	discoverytest.RunDeliverer(t, func(*testing.T) discoverytest.DelivererEnv {
		return discoverytest.DelivererEnv{MaxPayload: maxPayload, Queue: queue,
			Open: func(t *testing.T, ns string) discovery.Deliverer {
				return open(t, Config{URL: srv.URL(), Namespace: ns, Queue: queue})
			}}
	})
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "nats://user:secret@" + l.Addr().String()
	l.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, url := range []string{refused, "nats://" + silent.Addr().String()} {
		begin := time.Now()
		_, err := New(t.Context(), Config{URL: url, DialTimeout: 300 * time.Millisecond})
		if !errors.Is(err, discovery.ErrUnavailable) || !strings.Contains(err.Error(), "Config.URL") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("err = %v, want ErrUnavailable with the flag and without the password", err)
		}
		t.Logf("after %s: %v", time.Since(begin).Round(time.Millisecond), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := New(ctx, Config{URL: "nats://" + silent.Addr().String(), DialTimeout: time.Minute}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("New whose context ended: %v", err)
	}
}

func TestConfigReportsAll(t *testing.T) {
	err := Config{Namespace: "a.b", User: "u", NKeySeed: "f", DialTimeout: time.Hour, Queue: -1}.Validate()
	for _, want := range []string{"Config.URL", `"a.b"`, "password", "exclude", "1h0m0s", "-1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, does not say %s", err, want)
		}
	}
	for _, url := range []string{"nats://svc:secret@h:port", "nats://svc:sec/secret@h", "svc:secret@",
		"nats://svc:%secret@h", "nats://a:secret@h,nats://b:secret@h:x"} {
		d, err := New(t.Context(), Config{URL: url, DialTimeout: 200 * time.Millisecond})
		if err == nil {
			d.Close()
			t.Fatalf("%s connects", url)
		}
		if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "Config.URL") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := New(t.Context(), Config{URL: "nats://127.0.0.1:1", NKeySeed: "/does/not/exist"}); err == nil ||
		!strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("a missing seed file: %v", err)
	}
}

// TestRequestIDIsText: it goes into the worker's log and traces.
func TestRequestIDIsText(t *testing.T) {
	srv := devtest.NATS(t)
	d := open(t, Config{URL: srv.URL()})
	if _, err := d.Serve(within(t), discoverytest.Worker("w", 1),
		func(context.Context, discovery.Request) discovery.Reply {
			return discovery.Reply{Answer: discovery.Accepted}
		}); err != nil {
		t.Fatal(err)
	}
	r, err := d.Deliver(within(t), "w", discovery.Request{ID: "caf\xe9"})
	if err != nil || r.Answer != discovery.BadRequest || !strings.Contains(r.Reason, "is not UTF-8 text") {
		t.Errorf("reply %+v, %v", r, err)
	}
	if r, err = d.Deliver(within(t), "w", discovery.Request{ID: "café"}); err != nil || r.Answer != discovery.Accepted {
		t.Errorf("reply %+v, %v", r, err)
	}
}

// TestRestart: requests fail at once while NATS is down, none is kept for later, and the workers are reachable again
// afterwards.
func TestRestart(t *testing.T) {
	srv := devtest.NATS(t)
	server, client := open(t, Config{URL: srv.URL()}), open(t, Config{URL: srv.URL()})
	entered, release := make(chan string, 100), make(chan struct{})
	if _, err := server.Serve(within(t), discoverytest.Worker("w", 1),
		func(_ context.Context, r discovery.Request) discovery.Reply {
			entered <- r.ID
			if r.ID == "underway" {
				<-release
			}
			return discovery.Reply{Answer: discovery.Accepted}
		}); err != nil {
		t.Fatal(err)
	}
	underway := make(chan error, 1)
	go func() {
		_, err := client.Deliver(within(t), "w", discovery.Request{ID: "underway"})
		underway <- err
	}()
	<-entered
	srv.Kill()
	if err := <-underway; !errors.Is(err, discovery.ErrUnavailable) {
		t.Errorf("a request under way when the server died: %v, want ErrUnavailable", err)
	}
	close(release)
	for range 20 {
		if _, err := client.Deliver(within(t), "w", discovery.Request{ID: "while down"}); !errors.Is(err,
			discovery.ErrUnavailable) {
			t.Fatalf("while the server is down: %v, want ErrUnavailable", err)
		}
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	for {
		r, err := client.Deliver(within(t), "w", discovery.Request{ID: "after"})
		if err == nil && r.Answer == discovery.Accepted {
			break
		}
		if !errors.Is(err, discovery.ErrUnavailable) && !errors.Is(err, discovery.ErrNoResponders) {
			t.Fatalf("while it comes back: %+v, %v", r, err)
		}
		if time.Since(begin) > discoverytest.Wait {
			t.Fatal("it does not come back")
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("requests flow %s after the server is back", time.Since(begin).Round(time.Millisecond))
	if id := <-entered; id != "after" {
		t.Errorf("the worker got request %q, which was made while the server was down", id)
	}
}

// TestPaused: a server that hangs makes requests wait for their own deadline, no longer.
func TestPaused(t *testing.T) {
	srv := devtest.NATS(t)
	d := open(t, Config{URL: srv.URL()})
	if _, err := d.Serve(within(t), discoverytest.Worker("w", 1), accept); err != nil {
		t.Fatal(err)
	}
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.Deliver(ctx, "w", discovery.Request{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v, want the context's", err)
	}
	if err := srv.Resume(); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Deliver(within(t), "w", discovery.Request{}); err != nil || r.Answer != discovery.Accepted {
		t.Errorf("after it went on: %+v, %v", r, err)
	}
}

func TestDrainWhileDown(t *testing.T) {
	srv := devtest.NATS(t)
	d := open(t, Config{URL: srv.URL()})
	s, err := d.Serve(within(t), discoverytest.Worker("w", 1), accept)
	if err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	if err := s.Drain(within(t)); err != nil {
		t.Error(err)
	}
}

// TestMicroTool speaks what the nats tool speaks for micro ls, info and stats.
func TestMicroTool(t *testing.T) {
	srv := devtest.NATS(t)
	d := open(t, Config{URL: srv.URL(), Namespace: "prod", Name: "node-7"})
	for _, w := range discoverytest.Workers("w", 3, 5) {
		if _, err := d.Serve(within(t), w, accept); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if _, err := d.Deliver(within(t), "w-1", discovery.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := natsio.Connect(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	// Messages that are none of ours are answered, and counted.
	if m, err := nc.RequestWithContext(within(t), "laneway.prod.worker.w-1", []byte("hello")); err != nil ||
		m.Header.Get(headerAnswer) != "bad-request" {
		t.Errorf("a foreign message: %v, %v", m, err)
	}
	newer := natsio.NewMsg("laneway.prod.worker.w-1")
	newer.Header.Set(headerVersion, "2")
	if m, err := nc.RequestMsgWithContext(within(t), newer); err != nil || m.Header.Get(headerAnswer) != "unsupported" {
		t.Errorf("a newer version: %v, %v", m, err)
	}

	ask := func(subject string, into any) {
		t.Helper()
		m, err := nc.RequestWithContext(within(t), subject, nil)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		if err := json.Unmarshal(m.Data, into); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
	}
	var ping natsmicro.Ping
	ask("$SRV.PING", &ping)
	if ping.Name != "laneway-prod" || ping.ID == "" || ping.Version != serviceVersion ||
		ping.Type != natsmicro.PingResponseType || ping.Metadata["process"] != "node-7" {
		t.Errorf("ping: %+v", ping)
	}
	var info natsmicro.Info
	ask("$SRV.INFO.laneway-prod", &info)
	if info.Type != natsmicro.InfoResponseType || len(info.Endpoints) != 3 {
		t.Fatalf("info: %+v", info)
	}
	if e := info.Endpoints[1]; e.Name != "w-1" || e.Subject != "laneway.prod.worker.w-1" ||
		e.Metadata["node_name"] != "process-5" || e.Metadata["models"] != "mock" {
		t.Errorf("endpoint: %+v", e)
	}
	var stats natsmicro.Stats
	ask("$SRV.STATS.laneway-prod."+ping.ID, &stats)
	if stats.Type != natsmicro.StatsResponseType || len(stats.Endpoints) != 3 {
		t.Fatalf("stats: %+v", stats)
	}
	if e := stats.Endpoints[1]; e.NumRequests != 6 || e.NumErrors != 2 || !strings.Contains(e.LastError, "version") {
		t.Errorf("stats of w-1: %+v", e)
	}
}
