//go:build unix

package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

func TestRealSignalCancels(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if s == syscall.SIGHUP && signal.Ignored(s) {
			t.Log("this process was started with SIGHUP ignored, as by nohup")
			continue
		}
		a, _, _ := newTest()
		code := a.Run(nil, func(ctx context.Context, _ *slog.Logger) error {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				return err
			}
			<-ctx.Done()
			if sig, ok := errors.AsType[*SignalError](context.Cause(ctx)); !ok || sig.Signal != s {
				t.Errorf("cause is %v", context.Cause(ctx))
			}
			return nil // a program that stops cleanly on a signal succeeds
		})
		if code != 0 {
			t.Errorf("%v: code %d", s, code)
		}
	}
}

// TestNohup: who starts a program under nohup wants it to outlive the terminal.
func TestNohup(t *testing.T) {
	const child = "LANEWAY_TEST_NOHUP"
	if os.Getenv(child) != "" {
		a, _, _ := newTest()
		a.Stderr = os.Stderr
		os.Exit(a.Run(nil, func(ctx context.Context, _ *slog.Logger) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
				return err
			}
			// whoever took the other one took it first
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}))
	}
	cmd := exec.Command("sh", "-c", `trap "" HUP; exec "$0" -test.run='^TestNohup$'`, os.Args[0])
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != ExitFailure || !strings.Contains(string(out),
		"prog: stopped by signal: terminated") {
		t.Fatalf("%v: %s", err, out)
	}
}
