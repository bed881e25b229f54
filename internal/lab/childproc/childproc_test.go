package childproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const modeEnv = "CHILDPROC_TEST_MODE"

type note struct {
	Op    string `json:"op"`
	Error string `json:"error,omitempty"`
}

func (n note) Operation() string { return n.Op }
func (n note) Failure() string   { return n.Error }

// TestMain is the child too: it answers each command with itself, or fails as its mode says.
func TestMain(m *testing.M) {
	mode := os.Getenv(modeEnv)
	if mode == "" {
		// of the children: the race detector has them sleep a second at their end
		os.Setenv("GORACE", "atexit_sleep_ms=0")
		goleak.VerifyTestMain(m)
		return
	}
	out := NewWriter[note](os.Stdout)
	err := Commands(context.Background(), os.Stdin, func(n note) error {
		switch mode {
		case "exits":
			fmt.Fprintln(os.Stderr, "its last words")
			os.Exit(3)
		case "fails":
			n.Error = "it cannot"
		}
		return out.Send(n)
	})
	if err != nil {
		os.Exit(1)
	}
}

func start(t *testing.T, g *Group[note], mode string) *Proc[note] {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := StartProc[note](Program{Exe: exe, Env: []string{modeEnv + "=" + mode}}, "child "+mode)
	if err != nil {
		t.Fatal(err)
	}
	g.Procs = append(g.Procs, p)
	t.Cleanup(p.Stop)
	return p
}

func TestGroup(t *testing.T) {
	g := &Group[note]{}
	for range 2 {
		start(t, g, "answers")
	}
	if err := g.Tell(note{Op: "a"}, g.Procs); err != nil {
		t.Fatal(err)
	}
	got, err := g.Await(t.Context(), time.Minute, "a", g.Procs)
	if err != nil || len(got) != 2 || got[1].Op != "a" {
		t.Fatalf("%v, %v", got, err)
	}
	if _, err := g.Await(t.Context(), time.Millisecond, "b", g.Procs); err == nil || !strings.Contains(err.Error(),
		`did not say "b"`) {
		t.Errorf("nobody said it: %v", err)
	}
	if err := g.Pass(t.Context(), time.Millisecond); err != nil {
		t.Errorf("time passed: %v", err)
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := g.Pass(ctx, time.Hour); !errors.Is(err, why) {
		t.Errorf("interrupted: %v", err)
	}
	g.Stop()
	g.Stop()
	for _, p := range g.Procs {
		if p.Cmd.ProcessState == nil || !p.Cmd.ProcessState.Success() {
			t.Errorf("%s: %v", p.Name, p.Cmd.ProcessState)
		}
	}
}

// TestChildThatGivesUp: an error names the child, why it failed, and its last log lines, whoever was waited for.
func TestChildThatGivesUp(t *testing.T) {
	for mode, want := range map[string]string{"exits": "exit status 3", "fails": "it cannot"} {
		g := &Group[note]{}
		good, bad := start(t, g, "answers"), start(t, g, mode)
		if err := bad.Send(note{Op: "a"}); err != nil {
			t.Fatal(err)
		}
		_, err := g.Await(t.Context(), time.Minute, "a", []*Proc[note]{good})
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Name != "child "+mode || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", mode, err)
		}
		if mode == "exits" && (e == nil || len(e.Log) != 1 || e.Log[0] != "its last words") {
			t.Errorf("its log: %v", err)
		}
	}
}
