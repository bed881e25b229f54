package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

func TestSettings(t *testing.T) {
	s := parse(t, "--router=random", "--on-disconnect=stop", "--overload-status=529", "--max-open-requests=7",
		"--retry-limit=0", "--sse-keepalive=0", "--first-token-timeout=3s",
		"--max-buffered-bytes=64MiB", "--response-plane=tcp", "--active-ping-interval=0", "--resume-timeout=0",
		"--batch-gap-max=0", "--urgent=off", "--dial=on-demand", "--quic-lanes=2")
	if s.router != "random" || !s.stopOnDisconnect || s.overloadStatus != 529 || s.maxOpen != 7 ||
		s.firstToken != 3*time.Second || s.maxBuffered != 64<<20 {
		t.Errorf("%+v", s)
	}
	if c := s.httpConfig(nil, nil, nil); c.KeepAlive != -1 || c.MaxOpenRequests != 7 || c.OverloadStatus != 529 ||
		!c.StopOnDisconnect || c.FirstTokenTimeout != 3*time.Second || c.InactivityTimeout != time.Minute {
		t.Errorf("%+v", c)
	}
	if s := parse(t, "--name="); s.name == "" {
		t.Error("no name was made")
	}
}

func TestBadFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--router=best":                  "least-loaded, round-robin, random",
		"--overload-status=500":          "429, 503, 529",
		"--on-disconnect=wait":           "kill, stop",
		"--http-addr=8000":               "host:port",
		"--nats-url=127.0.0.1:4222":      "nats://",
		"--nats-url=http://127.0.0.1:42": `scheme "http"`,
		"--namespace=a.b":                "letters, digits",
		"--drain-timeout=10":             "no unit",
		"--max-buffered-bytes=1MiB":      "use 4MiB to 1TiB, because", // every request would be turned away
		"--max-open-requests=-1":         "out of range",
	} {
		app := cli.New("frontend", "")
		app.Env = nil
		declare(app)
		if err := app.Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), arg[:strings.Index(arg, "=")]) {
			t.Errorf("%s: %v, want %q in it", arg, err, want)
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
		"--http-addr=u:secret@host:1",
		"--http-addr=secret@host:1", "--name=--nats-url=nats://u:secret@h", "svc:secret@host:4222",
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
