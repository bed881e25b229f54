package admin

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

// healthcheck runs the command as a program would.
func healthcheck(t *testing.T, args ...string) (code int, errs string) {
	t.Helper()
	app := cli.New("prog", "does things")
	var stderr bytes.Buffer
	app.Env, app.Stderr = nil, &stderr
	app.Group("Process").Addr("admin-addr", ":0", "where /metrics is")
	AddHealthcheck(app)
	return app.Run(append([]string{"healthcheck"}, args...), nil), stderr.String()
}

func TestHealthcheck(t *testing.T) {
	var ready atomic.Bool
	s := start(t, Config{Ready: func() error {
		if !ready.Load() {
			return errors.New("no worker is known\nand more")
		}
		return nil
	}})
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{":" + port, "0.0.0.0:" + port, "127.0.0.1:" + port} {
		ready.Store(false)
		if code, errs := healthcheck(t, "--admin-addr", addr); code != 1 ||
			errs != "prog healthcheck: /readyz: 503 no worker is known\n" {
			t.Errorf("%s: code %d, %q", addr, code, errs)
		}
		if code, errs := healthcheck(t, "--admin-addr", addr, "--probe", "live"); code != 0 || errs != "" {
			t.Errorf("%s live: code %d, %q", addr, code, errs)
		}
		ready.Store(true)
		if code, errs := healthcheck(t, "--admin-addr", addr); code != 0 || errs != "" {
			t.Errorf("%s: code %d, %q", addr, code, errs)
		}
	}
}

func TestHealthcheckOfNobody(t *testing.T) {
	if code, errs := healthcheck(t); code != 1 || !strings.Contains(errs, "LANEWAY_ADMIN_ADDR") {
		t.Errorf("without a port: code %d, %q", code, errs)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections into its backlog, never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if code, errs := healthcheck(t, "--admin-addr", l.Addr().String(), "--timeout", "50ms"); code != 1 ||
		!strings.Contains(errs, "--timeout 50ms") {
		t.Errorf("a silent process: code %d, %q", code, errs)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if code, errs := healthcheck(t, "--admin-addr", l.Addr().String()); code != 1 ||
		!strings.Contains(errs, "refused") {
		t.Errorf("no process: code %d, %q", code, errs)
	}
}

func TestProbeTellsUnhealthyFromUnreachable(t *testing.T) {
	s := start(t, Config{Live: func() error { return errors.New("stuck") }})
	var u *UnhealthyError
	if err := Probe(context.Background(), s.Addr().String(), "/livez"); !errors.As(err, &u) || u.Status != 503 ||
		u.Reason != "stuck" {
		t.Errorf("%v", err)
	}
}
