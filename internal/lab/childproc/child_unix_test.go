//go:build unix

package childproc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLimit: a program that takes too long is told to end, and so is one whose context ends.
func TestLimit(t *testing.T) {
	code, err := Run(t.Context(), Command{Path: "sleep", Args: []string{"60"}, Limit: 50 * time.Millisecond})
	if _, ok := errors.AsType[*LimitError](err); !ok || code != -1 {
		t.Errorf("code %d, %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Command{Path: "sleep", Args: []string{"60"}, Limit: time.Minute}); !errors.Is(err,
		context.Canceled) {
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
	_, err = Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "sleep 600 & echo begun"}, Stdout: w,
		Limit: time.Minute})
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

func TestLockFileIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := LockFile(t.Context(), path, func() { t.Error("waited for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	if _, err := LockFile(ctx, path, func() { waits++; cancel() }); !errors.Is(err, context.Canceled) || waits != 1 {
		t.Fatalf("second lock: %v after %d waits", err, waits)
	}
	unlock()
	unlock, err = LockFile(t.Context(), path, func() { t.Error("waited for a lock that was given back") })
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// begin starts a shell and waits until it has said that it is ready.
func begin(t *testing.T, s Spec, script string) *Child {
	t.Helper()
	said := make(chan struct{})
	s.Name, s.Path, s.Args = "sh", "sh", []string{"-c", script}
	s.Read = func(r io.Reader) {
		b := make([]byte, 1)
		if n, _ := r.Read(b); n == 1 {
			close(said)
		}
		_, _ = io.Copy(io.Discard, r)
	}
	c, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Kill)
	select {
	case <-said:
	case <-c.Done():
		t.Fatalf("it ended: %s", c.State())
	case <-time.After(time.Minute):
		t.Fatal("it does not begin")
	}
	return c
}

// TestEnds: how a child ends, and what is said of it.
func TestEnds(t *testing.T) {
	told := make(chan bool, 1)
	ended := func(c *Child) { told <- c.Asked() }
	ctx, cancel := context.WithCancel(t.Context())

	c := begin(t, Spec{Ended: ended}, "trap 'exit 3' TERM; echo; while :; do sleep 0.01; done")
	err := c.End(ctx, c.Terminate, time.Minute)
	if c.ExitCode() != 3 || err == nil || c.State() != "exit status 3" || c.Killed() || !<-told {
		t.Errorf("asked to end: %v, %s, killed %v", err, c.State(), c.Killed())
	}
	if again := c.End(ctx, c.Terminate, time.Minute); again != err || !errors.Is(c.Signal(os.Interrupt),
		os.ErrProcessDone) || c.Running() {
		t.Errorf("again: %v", again)
	}

	c = begin(t, Spec{Ended: ended}, "trap '' TERM; echo; while :; do sleep 0.01; done")
	if err := c.End(ctx, c.Terminate, 50*time.Millisecond); !errors.Is(err, ErrKilled) || !c.Killed() ||
		c.ExitCode() != -1 || !<-told {
		t.Errorf("does not end: %v", err)
	}

	c = begin(t, Spec{Ended: ended}, "trap '' TERM; echo; while :; do sleep 0.01; done")
	cancel()
	if err := c.End(ctx, c.Terminate, time.Minute); !errors.Is(err, ErrKilled) || !errors.Is(err, context.Canceled) ||
		!<-told {
		t.Errorf("nobody waits any more: %v", err)
	}

	c = begin(t, Spec{Ended: ended, Held: true}, "echo; read line; exit 4")
	if err := c.End(t.Context(), c.Stdin.Close, time.Minute); c.ExitCode() != 4 || err == nil || !<-told {
		t.Errorf("its standard input: %v", err)
	}

	c = begin(t, Spec{Ended: ended}, "echo; exit 5")
	if <-c.Done(); <-told || c.ExitCode() != 5 || c.Err() == nil {
		t.Errorf("by itself: %v, asked for %v", c.Err(), c.Asked())
	}

	c = begin(t, Spec{}, "trap 'exit 0' TERM; echo; while :; do sleep 0.01; done")
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := c.End(t.Context(), c.Terminate, time.Minute); err != nil || c.Killed() {
		t.Errorf("a paused one: %v", err)
	}

	if _, err := Start(Spec{Name: "none", Path: "/no/such/program", Held: true}); err == nil ||
		!strings.Contains(err.Error(), "none") {
		t.Errorf("a program that is not there: %v", err)
	}
	want := errors.New("no namespace")
	if _, err := Start(Spec{Name: "x", Path: "sh", Around: func(func() error) (bool,
		error) {
		return false, want
	}}); !errors.Is(err, want) {
		t.Errorf("what stands around it failed: %v", err)
	}
}

func TestTail(t *testing.T) {
	var out bytes.Buffer
	tail := &Tail{Keep: 2, To: &out, Prefix: "a: "}
	for _, s := range []string{"one\ntw", "o", "\n", "\nunfinished"} {
		if n, err := tail.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := out.String(); got != "a: one\na: two\na: \n" {
		t.Errorf("%q", got)
	}
	if got := tail.Last(); !slices.Equal(got, []string{"two", "", "unfinished"}) {
		t.Errorf("%q", got)
	}
	for range 100 {
		if _, err := tail.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if got := tail.Last(); len(got[2]) != maxLine {
		t.Errorf("a line without end takes %d bytes", len(got[2]))
	}
}
