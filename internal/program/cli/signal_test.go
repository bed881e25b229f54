package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSecondSignal: the first signal cancels, what comes within a second of it is the same event, and a later one
// exits.
func TestSecondSignal(t *testing.T) {
	for _, first := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(first.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _, errs := newTest()
				var signals chan<- os.Signal
				a.notify = func(c chan<- os.Signal) func() { signals = c; return func() {} }
				exited := 0
				a.exit = func(code int) { exited = code }
				code := a.Run(nil, func(ctx context.Context, _ *slog.Logger) error {
					signals <- first
					<-ctx.Done()
					var sig *SignalError
					if !errors.As(context.Cause(ctx), &sig) || sig.Signal != first {
						t.Errorf("cause is %v", context.Cause(ctx))
					}
					signals <- first // to the group
					time.Sleep(oneEvent - time.Millisecond)
					signals <- syscall.SIGHUP
					if synctest.Wait(); exited != 0 {
						t.Fatalf("signals of one event exit with %d", exited)
					}
					time.Sleep(time.Millisecond)
					signals <- os.Interrupt
					if synctest.Wait(); exited != exitSignal {
						t.Errorf("exit code %d after the second signal", exited)
					}
					return fmt.Errorf("wait: %w", ctx.Err())
				})
				if want := "prog: stopped by signal: " + first.String() + "\n"; code != ExitFailure ||
					!strings.HasSuffix(errs.String(), want) {
					t.Errorf("code %d, output %q", code, errs)
				}
			})
		})
	}
}
