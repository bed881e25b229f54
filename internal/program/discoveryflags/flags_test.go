package discoveryflags

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse returns the settings and what a report would show of the flags.
func parse(t *testing.T, env []string, args ...string) (Settings, map[string]string, error) {
	t.Helper()
	app := cli.New("test", "test")
	app.Env, app.Stdout, app.Stderr = env, io.Discard, io.Discard
	f := Register(app, Options{Worker: true})
	if err := app.Parse(args); err != nil {
		return Settings{}, nil, err
	}
	s, err := f.Settings()
	return s, app.Values(), err
}

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSettings(t *testing.T) {
	s, _, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s.Namespace != "default" || s.Etcd.LeaseTTL != 10*time.Second || s.Wait != 5*time.Second || s.Etcd.TLS != nil ||
		s.NATS.TLS != nil {
		t.Errorf("defaults: %+v", s)
	}
	cert, key, _ := devtest.Certificate(t)
	password := file(t, "password", "hush\n")
	s, values, err := parse(t, []string{"LANEWAY_ETCD_USERNAME=root", "LANEWAY_NATS_CREDS_FILE=" + password},
		"--etcd-password-file="+password,
		"--etcd-ca-file="+cert, "--etcd-cert-file="+cert, "--etcd-key-file="+key, "--nats-ca-file="+cert,
		"--lease-ttl=2s",
		"--nats-url=nats://me:hush@127.0.0.1:1,nats://127.0.0.1:2", "--etcd-endpoints=a:1,b:2")
	if err != nil {
		t.Fatal(err)
	}
	if s.Etcd.Username != "root" || s.Etcd.Password != "hush" || s.Etcd.TLS == nil ||
		len(s.Etcd.TLS.Certificates) != 1 || s.NATS.TLS == nil ||
		s.NATS.Credentials != password || s.Etcd.LeaseTTL != 2*time.Second || len(s.Etcd.Endpoints) != 2 {
		t.Errorf("settings: %+v", s)
	}
	for name, v := range values {
		if strings.Contains(v, "hush") {
			t.Errorf("--%s shows a password: %s", name, v)
		}
	}
	if err := s.Etcd.Validate(); err != nil {
		t.Error(err)
	}
	if err := s.NATS.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBadSettings(t *testing.T) {
	empty, text := file(t, "empty", "\n"), file(t, "text", "no PEM")
	for _, c := range []struct{ args, want string }{
		{"--etcd-username=root", "--etcd-username needs --etcd-password-file"},
		{"--nats-password-file=" + text, "--nats-password-file needs --nats-username"},
		{"--nats-key-file=" + text, "--nats-key-file needs --nats-cert-file"},
		{"--nats-creds-file=" + text + " --nats-nkey-file=" + text,
			"--nats-creds-file and --nats-nkey-file exclude each other"},
		{"--etcd-username=root --etcd-password-file=/no/such/file", "--etcd-password-file /no/such/file"},
		{"--etcd-username=root --etcd-password-file=" + empty, "the file is empty"},
		{"--etcd-ca-file=" + text, "--etcd-ca-file " + text + ": holds no PEM certificate"},
		{"--nats-cert-file=" + text + " --nats-key-file=" + text, "--nats-cert-file " + text},
		{"--nats-nkey-file=/no/such/file", "--nats-nkey-file /no/such/file"},
		{"--lease-ttl=1500ms", "use whole seconds"},
		{"--namespace=a.b", "--namespace a.b: is not a namespace"},
		{"--nats-url=http://x", `has the scheme "http"`},
	} {
		if _, _, err := parse(t, nil, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestSecured: a server with TLS and a password takes clients with the right flags only.
func TestSecured(t *testing.T) {
	cert, key, _ := devtest.Certificate(t)
	password := file(t, "password", "hush\n")
	n := devtest.NATS(t, devserver.Options{TLSCert: cert, TLSKey: key, User: "me", Password: "hush"})
	e := devtest.Etcd(t, devserver.Options{TLSCert: cert, TLSKey: key})
	endpoints := strings.Join(e.Endpoints(), ",")
	right := []string{"--nats-url=" + n.URL(), "--nats-ca-file=" + cert, "--nats-username=me", "--nats-password-file=" +
		password,
		"--etcd-endpoints=" + endpoints, "--etcd-ca-file=" + cert, "--wait-for-discovery=0s"}
	connect := func(args ...string) error {
		s, _, err := parse(t, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		d, err := s.Deliverer(t.Context(), s.Deadline(), "test", log)
		if err != nil {
			return err
		}
		defer d.Close()
		r, err := s.Registry(t.Context(), s.Deadline(), log)
		if err != nil {
			return err
		}
		return r.Close()
	}
	if err := connect(right...); err != nil {
		t.Errorf("with all that is needed: %v", err)
	}
	if err := connect(append(right, "--nats-password-file="+file(t, "wrong", "loud"))...); err == nil ||
		strings.Contains(err.Error(), "loud") {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := connect(append(right, "--nats-ca-file=")...); err == nil {
		t.Error("without the authority of NATS")
	}
}

// TestWait: a server that comes late is waited for; one that does not come is the one error, after the bound.
func TestWait(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	ln.Close()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s, _, err := parse(t, nil, "--nats-url=nats://"+nobody, "--wait-for-discovery=300ms")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err = s.Deliverer(t.Context(), s.Deadline(), "test", logger); err == nil || !strings.Contains(err.Error(),
		nobody) || strings.Contains(err.Error(), "\n") {
		t.Errorf("nobody there: %v", err)
	}
	if time.Since(began) < 300*time.Millisecond || !strings.Contains(log.String(), "NATS does not answer yet") ||
		!strings.Contains(log.String(), "--wait-for-discovery") {
		t.Errorf("given up after %v, log: %s", time.Since(began), &log)
	}

	n := devtest.NATS(t)
	n.Kill()
	if s, _, err = parse(t, nil, "--nats-url="+n.URL(), "--wait-for-discovery=1m"); err != nil {
		t.Fatal(err)
	}
	first := make(chan struct{})
	late := slog.New(slog.NewTextHandler(&signalled{c: first}, nil))
	back := make(chan error, 1)
	go func() {
		<-first // it has been missed
		back <- n.Restart(context.Background())
	}()
	d, err := s.Deliverer(t.Context(), s.Deadline(), "test", late)
	if err != nil {
		t.Fatalf("NATS came late: %v", err)
	}
	d.Close()
	if err := <-back; err != nil {
		t.Error(err)
	}
}

// TestWaitForSilentEtcd: an etcd that takes connections and says nothing is given up at the deadline too, not after a
// request's own bound.
func TestWaitForSilentEtcd(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, _, err := parse(t, nil, "--etcd-endpoints="+ln.Addr().String(), "--wait-for-discovery=600ms")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r, err := s.Registry(t.Context(), s.Deadline(), slog.New(slog.DiscardHandler))
	var unreachable *etcd.UnreachableError
	if !errors.As(err, &unreachable) {
		t.Fatalf("registry %v, error %v, want an *etcd.UnreachableError", r, err)
	}
	if took := time.Since(began); took >= etcd.DefaultDialTimeout {
		t.Errorf("given up after %v with --wait-for-discovery=600ms", took)
	}
}

// signalled closes its channel at the first write.
type signalled struct {
	c    chan struct{}
	done bool
}

func (s *signalled) Write(b []byte) (int, error) {
	if !s.done {
		s.done = true
		close(s.c)
	}
	return len(b), nil
}
