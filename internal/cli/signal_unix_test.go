//go:build unix

package cli

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
)

func TestRealSignalCancels(t *testing.T) {
	a, _, _ := newTest()
	code := a.Run(nil, func(ctx context.Context, _ *slog.Logger) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return nil // a program that stops cleanly on a signal succeeds
	})
	if code != 0 {
		t.Errorf("code %d", code)
	}
}
