package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
	"github.com/laneway-ai/laneway/discovery/internal/feed"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, cfg Config) *Registry {
	t.Helper()
	reg, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reg.Close() })
	return reg
}

// crash ends the registry the way a killed process does: the connection breaks, nothing is revoked.
func (r *Registry) crash() {
	r.abort()
	_ = r.cli.Close()
	_ = r.Close() // joins the goroutines; it cannot revoke any more
}

// raw is a client beside the registry.
func raw(t *testing.T, srv *devserver.Server) *clientv3.Client {
	t.Helper()
	cli, err := clientv3.New(clientv3.Config{Endpoints: srv.Endpoints(), Logger: zapTo(Config{}.withDefaults().Logger)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cli.Close() })
	return cli
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), discoverytest.Wait)
	t.Cleanup(cancel)
	return ctx
}

func TestRegistry(t *testing.T) {
	srv := devtest.Etcd(t)
	cli := raw(t, srv)
	key := func(ns, id string) string { return "/laneway/v1/" + ns + "/workers/" + id }
	discoverytest.RunRegistry(t, func(t *testing.T) discoverytest.RegistryEnv {
		if _, err := cli.Delete(within(t), "/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		return discoverytest.RegistryEnv{
			Open: func(t *testing.T, ns string) discovery.Registry {
				return open(t, Config{Endpoints: srv.Endpoints(), Namespace: ns, LeaseTTL: 4 * time.Second})
			},
			Crash: func(_ *testing.T, reg discovery.Registry) { reg.(*Registry).crash() },
			PutRaw: func(t *testing.T, ns, id string, data []byte) {
				if _, err := cli.Put(within(t), key(ns, id), string(data)); err != nil {
					t.Fatal(err)
				}
			},
			DeleteRaw: func(t *testing.T, ns, id string) {
				if _, err := cli.Delete(within(t), key(ns, id)); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	l.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, cfg := range []Config{
		{Endpoints: []string{refused}}, {Endpoints: []string{silent.Addr().String()}},
		{Endpoints: []string{refused}, Username: "u", Password: "p"},
	} {
		cfg.DialTimeout = 500 * time.Millisecond
		begin := time.Now()
		_, err := New(t.Context(), cfg)
		var un *UnreachableError
		if !errors.As(err, &un) || !strings.Contains(err.Error(), cfg.Endpoints[0]) || !strings.Contains(err.Error(),
			"Config.Endpoints") {
			t.Errorf("err = %v (%T), want an *UnreachableError that names %s and the field", err, err, cfg.Endpoints[0])
		}
		t.Logf("after %s: %v", time.Since(begin).Round(time.Millisecond), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ctx, Config{Endpoints: []string{refused}}); !errors.Is(err, context.Canceled) {
		t.Errorf("New with an ended context: %v", err)
	}
}

func TestConfigReportsAll(t *testing.T) {
	err := Config{Namespace: "a/b", Username: "u", LeaseTTL: 1500 * time.Millisecond, DialTimeout: time.Hour}.Validate()
	for _, want := range []string{"Config.Endpoints", `"a/b"`, "password", "1.5s", "1h0m0s"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, does not say %s", err, want)
		}
	}
	if err := (Config{Endpoints: []string{"x:1"}}).Validate(); err != nil {
		t.Error(err)
	}
	for endpoint, want := range map[string]string{
		"http://root:secret@h:2379": "http://xxxxx@h:2379 holds a user",
		"root:secret@h:2379":        "xxxxx@h:2379 holds a user", "http://secret@h:2379": "by themselves",
		"http://h:2379/?k=secret": "http://h:2379/?k=xxxxx is not an address of etcd",
		"ftp:secret@x://h:1":      "has the scheme",
	} {
		if err := (Config{Endpoints: []string{"x:1", endpoint, ""}}).Validate(); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s and no password", endpoint, err, want)
		}
	}
	err = &UnreachableError{Endpoints: []string{"http://root:secret@h:1", "h:2"}, Err: context.DeadlineExceeded}
	if !strings.Contains(err.Error(), "http://xxxxx@h:1") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestConflictNamesTheHolder(t *testing.T) {
	cfg := Config{Endpoints: devtest.Etcd(t).Endpoints(), LeaseTTL: 2 * time.Second}
	one, two := open(t, cfg), open(t, cfg)
	held, err := one.Register(within(t), []discovery.Worker{discoverytest.Worker("a", 1)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = two.Register(within(t), []discovery.Worker{discoverytest.Worker("b", 2), discoverytest.Worker("a", 2)})
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.WorkerID != "a" || conflict.NodeID != discoverytest.Node(1).ID ||
		conflict.NodeName != "process-1" {
		t.Fatalf("err = %v, want a conflict over a with process-1", err)
	}
	v := discoverytest.Watch(t, one)
	v.Expect("put a", "synced") // b was taken back
	if err := held.Err(); err != nil {
		t.Errorf("the holder is told %v", err)
	}
}

func TestDeadHolderIsWaitedFor(t *testing.T) {
	cfg := Config{Endpoints: devtest.Etcd(t).Endpoints(), LeaseTTL: time.Second}
	one, two := open(t, cfg), open(t, cfg)
	if _, err := one.Register(within(t), []discovery.Worker{discoverytest.Worker("a", 1)}); err != nil {
		t.Fatal(err)
	}
	one.crash()
	if _, err := two.Register(within(t), []discovery.Worker{discoverytest.Worker("a", 2)}); err != nil {
		t.Fatal(err)
	}
}

func TestNewLifeReplacesTheOld(t *testing.T) {
	srv := devtest.Etcd(t)
	cfg := Config{Endpoints: srv.Endpoints(), LeaseTTL: 3 * time.Second}
	old, young := open(t, cfg), open(t, cfg)
	first := discoverytest.Worker("a", 1)
	second := discoverytest.Worker("a", 2)
	second.Node.Name = first.Node.Name // started again: a new identity under the old name
	oldHeld, err := old.Register(within(t), []discovery.Worker{first})
	if err != nil {
		t.Fatal(err)
	}
	v := discoverytest.Watch(t, young)
	v.Expect("put a", "synced")
	youngHeld, err := young.Register(within(t), []discovery.Worker{second})
	if err != nil {
		t.Fatal(err)
	}
	v.Expect("put a")
	if v.Workers["a"].Node.ID != second.Node.ID {
		t.Error("the old life's record is still there")
	}
	// The old life, if it lives on, says what happened and does not fight.
	poll(t, "the old one to see the conflict", func() bool {
		var c *ConflictError
		return errors.As(oldHeld.Err(), &c) && c.NodeID == second.Node.ID
	})
	v.Quiet(100 * time.Millisecond)
	if err := youngHeld.Err(); err != nil {
		t.Error(err)
	}
	if err := youngHeld.Withdraw(within(t)); err != nil {
		t.Error(err)
	}
	v.Expect("delete a", "put a") // and has its place again when the other one goes
	poll(t, "the old one to be content", func() bool { return oldHeld.Err() == nil })
}

func TestDeletedByHandIsPutBack(t *testing.T) {
	srv := devtest.Etcd(t)
	reg := open(t, Config{Endpoints: srv.Endpoints(), LeaseTTL: 3 * time.Second})
	if _, err := reg.Register(within(t), discoverytest.Workers("w", 2, 1)); err != nil {
		t.Fatal(err)
	}
	v := discoverytest.Watch(t, reg)
	v.ExpectSet("put w-0", "put w-1")
	v.Expect("synced")
	if _, err := raw(t, srv).Delete(within(t), reg.key("w-1")); err != nil {
		t.Fatal(err)
	}
	v.Expect("delete w-1", "put w-1")
}

func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(discoverytest.Wait); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func names(prefix string, n int, kind string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s %s-%d", kind, prefix, i)
	}
	return out
}

func newFeed(t *testing.T) *feed.Feed {
	f := feed.New()
	t.Cleanup(func() { f.Close(nil) })
	return f
}
