//go:build unix

package children

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExitCodeAndOutput(t *testing.T) {
	var out, errs strings.Builder
	code, err := Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo $WORD; echo bad >&2; exit 3"}, Env: []string{"WORD=good"}, Stdout: &out, Stderr: &errs, Limit: time.Minute})
	if code != 3 || err == nil || out.String() != "good\n" || errs.String() != "bad\n" {
		t.Errorf("code %d, %v, %q, %q", code, err, &out, &errs)
	}
	if code, err := Run(t.Context(), Command{Path: "/no/such/program", Limit: time.Minute}); code != -1 || err == nil {
		t.Errorf("a program that is not there: %d, %v", code, err)
	}
	t.Setenv("LANEWAY_LANES", "9")
	if got, err := Output(t.Context(), "", "sh", "-c", "echo set:$LANEWAY_LANES"); err != nil || got != "set:" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLimit: a program that takes too long is told to end, and so is one whose context ends.
func TestLimit(t *testing.T) {
	code, err := Run(t.Context(), Command{Path: "sleep", Args: []string{"60"}, Limit: 50 * time.Millisecond})
	if _, ok := errors.AsType[*LimitError](err); !ok || code != -1 {
		t.Errorf("code %d, %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Command{Path: "sleep", Args: []string{"60"}, Limit: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestNothingIsLeft: what a program has left behind in its group ends with it, and lets go of the pipe.
func TestNothingIsLeft(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "sleep 600 & echo begun"}, Stdout: w, Limit: time.Minute})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "begun\n" {
		t.Errorf("%q, %v", b, err)
	}
}
