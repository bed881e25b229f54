package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

func parse(t *testing.T, args ...string) (settings, error) {
	t.Helper()
	app := cli.New("mockworker", "test")
	app.Env, app.Stdout, app.Stderr = nil, io.Discard, io.Discard
	f := declare(app)
	if err := app.Parse(args); err != nil {
		return settings{}, err
	}
	return f.settings()
}

func TestSettings(t *testing.T) {
	s, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	e := s.engine
	if s.workers != 64 || s.disco.Namespace != "default" || s.grace != 5*time.Second || e.Count != 64 ||
		e.MaxNumSeqs != 256 || e.MaxWaitingQueueLength != 1000 ||
		e.OutputTokens != 256 || e.TimeToFirstToken != 20*time.Millisecond ||
		e.InterTokenLatency != 200*time.Millisecond || e.FailureRate != 0 || e.Seed == 0 {
		t.Errorf("defaults: %+v", s)
	}
	e.Flush = func() {}
	if err := e.Validate(); err != nil {
		t.Errorf("the engine does not take the defaults: %v", err)
	}
	if !strings.HasSuffix(s.name, s.workerPrefix[strings.LastIndex(s.workerPrefix, "-"):]) {
		t.Errorf("name %q, worker ids begin with %q", s.name, s.workerPrefix)
	}

	s, err = parse(t, "--name=node.a:1", "--time-to-first-token=0s", "--max-waiting-queue-length=0", "--seed=7",
		"--failure-injection-rate=0.5",
		"--failure-types=stall,refuse", "--num-workers=2", "--token-bytes=12", "--startup-duration=1s",
		"--drain-timeout=3s", "--speedup-ratio=2")
	if err != nil {
		t.Fatal(err)
	}
	e = s.engine
	if s.workerPrefix != "node-a-1" || e.TimeToFirstToken >= 0 || e.MaxWaitingQueueLength >= 0 || e.Seed != 7 ||
		e.FailureRate != 0.5 ||
		len(e.FailureTypes) != 2 || e.FailureTypes[0] != mock.FailStall || e.Count != 2 || e.TokenBytes != 12 ||
		s.startup != time.Second ||
		s.drain != 3*time.Second || e.SpeedupRatio != 2 {
		t.Errorf("settings: %+v", s)
	}

	// What is held moves the mean by share x delay, and must move it by more than three inter-token latencies.
	for args, want := range map[string]bool{
		"--hold-share=0.5 --hold-delay=1201ms": true, "--hold-share=0.5 --hold-delay=1200ms": false,
		"--hold-share=0.5 --hold-delay=601ms --speedup-ratio=2": true,
	} {
		s, err := parse(t, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		if mean, enough := s.held(); mean != s.engine.HoldDelay/2 || enough != want {
			t.Errorf("%s: adds %v, enough %v", args, mean, enough)
		}
	}

	// Without a seed, the name makes one: equal names equal ones, others others.
	a, _ := parse(t, "--name=w-1")
	b, _ := parse(t, "--name=w-1")
	c, _ := parse(t, "--name=w-2")
	if a.engine.Seed != b.engine.Seed || a.engine.Seed == c.engine.Seed {
		t.Errorf("seeds %d, %d, %d", a.engine.Seed, b.engine.Seed, c.engine.Seed)
	}
	if p := prefixFrom(strings.Repeat("x", 300) + ".host-17"); len(p) != maxPrefix ||
		!strings.HasSuffix(p, "-host-17") {
		t.Errorf("prefix of a long name: %q", p)
	}
}

func TestBadFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--num-workers 0", "--num-workers 0: out of range"},
		{"--worker-id-prefix a.b", "--worker-id-prefix a.b: is not a worker id prefix"},
		{"--namespace a.b", "--namespace a.b: is not a namespace"},
		{"--nats-url localhost", "--nats-url localhost: is not a NATS URL: write it like nats://127.0.0.1:4222"},
		{"--failure-types explode", `"explode" is not known`},
		{"--failure-injection-rate 2", "--failure-injection-rate 2: out of range"},
		{"--inter-token-latency 1ms --speedup-ratio 100", "use a lower ratio"},
		{"--token-bytes 2", "--token-bytes 2: out of range"},
		{"--hold-share 0.5", "--hold-share 0.5 with --hold-delay 0s holds nothing: set both"},
		{"--hold-share 2 --hold-delay 1s", "--hold-share 2: out of range"},
	} {
		if _, err := parse(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.args, err, c.want)
		}
	}
}

// TestCheckConfig: files that the run would refuse, --check-config refuses too.
func TestCheckConfig(t *testing.T) {
	for arg, want := range map[string]string{
		"":                               "",
		"--etcd-ca-file=/no/such/file":   "--etcd-ca-file /no/such/file",
		"--nats-creds-file=/no/such/one": "--nats-creds-file /no/such/one",
		"--etcd-endpoints=http://":       "--etcd-endpoints http://: is not an address of etcd",
	} {
		var errs strings.Builder
		app, _ := newApp()
		app.Env, app.Stdout, app.Stderr = nil, io.Discard, &errs
		code := app.Run(append(strings.Fields(arg), "--check-config"), nil)
		if (code == 0) != (want == "") || !strings.Contains(errs.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q in it", arg, code, errs.String(), want)
		}
	}
}

// TestStartKeepsSecrets: no slip in an address brings its password into the journal.
func TestStartKeepsSecrets(t *testing.T) {
	for _, arg := range []string{
		"--nats-url=svc:secret@host:4222", "--nats-url=http://svc:secret@host:4222",
		"--nats-url=nats://svc:secret@host:port",
		"--etcd-endpoints=http://root:secret@host:2379", "--etcd-endpoints=root:secret@host:2379",
		"--etcd-endpoints=ftp://root:secret@host",
		"--otlp-endpoint=ftp://u:secret@host", "--otlp-endpoint=http://u:secret@", "--admin-addr=u:secret@host:x",
		"--advertise-addr=u:secret@host",
		"--bind-addr=u:secret@host:1", "--name=--nats-url=nats://u:secret@h", "svc:secret@host:4222",
		"--nats-ulr=nats://u:secret@h",
	} {
		var errs strings.Builder
		app, _ := newApp()
		app.Env, app.Stdout, app.Stderr = nil, io.Discard, &errs
		code := app.Run([]string{arg, "--check-config"}, nil)
		if strings.Contains(errs.String(), "secret") || code == 0 && !strings.HasPrefix(arg, "--name") {
			t.Errorf("%s: exit code %d, %s", arg, code, errs.String())
		}
	}
}
