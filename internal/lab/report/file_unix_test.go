//go:build unix

package report

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPipesAreRefused: opening a pipe that nobody writes to never returns, so no reader of a run directory may do it.
func TestPipesAreRefused(t *testing.T) {
	readers := map[string]func(dir string) error{
		"Read":     func(dir string) error { _, err := Read(dir); return err },
		"Check":    Check,
		"ScanDir":  func(dir string) error { _, err := ScanDir(dir, func(*Row) {}); return err },
		"ReadRows": func(dir string) error { _, _, err := ReadRows(dir); return err },
		"series":   func(dir string) error { _, err := ReadSeries(dir); return err },
	}
	pipes := t.TempDir()
	for _, f := range []string{RunFile, RowsFile, TimeseriesFile} {
		if err := syscall.Mkfifo(filepath.Join(pipes, f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, read := range readers {
		got := make(chan error, 1)
		go func() { got <- read(pipes) }() // joined below, or freed by a writer of each pipe
		var err error
		select {
		case err = <-got:
		case <-ctx.Done():
			for _, f := range []string{RunFile, RowsFile, TimeseriesFile} {
				if w, err := os.OpenFile(filepath.Join(pipes, f), os.O_RDWR, 0); err == nil {
					defer w.Close()
				}
			}
			t.Fatalf("%s waits for a writer", name)
		}
		var no *IrregularError
		if !errors.As(err, &no) {
			t.Errorf("%s: %v, want an *IrregularError", name, err)
		}
	}
}
