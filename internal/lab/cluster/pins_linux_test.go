package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestPhysicalCores(t *testing.T) {
	root := t.TempDir()
	siblings := func(cpu int, list string) {
		dir := filepath.Join(root, fmt.Sprint("cpu", cpu), "topology")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(list+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		siblings(i, fmt.Sprintf("%d,%d", i, i+4))
		siblings(i+4, fmt.Sprintf("%d,%d", i, i+4))
	}
	for allowed, want := range map[string]string{
		"0-7": "[0,4 1,5 2,6 3,7]", "0,2-4,7": "[0,4 2 3,7]", "8-9": "[8 9]", // of the last the kernel says nothing
	} {
		set, err := parseCores(allowed)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(physicalCores(root, set)); got != want {
			t.Errorf("%s: %s, want %s", allowed, got, want)
		}
	}
	// This machine's: every core that may be used, once.
	allowed, err := allowedCores()
	if err != nil || len(allowed) == 0 {
		t.Fatal(allowed, err)
	}
	n := 0
	for _, c := range physicalCores(cpuRoot, allowed) {
		n += len(c)
	}
	if n != len(allowed) {
		t.Errorf("%v are grouped as %v", allowed, physicalCores(cpuRoot, allowed))
	}
}

// TestPinned: each process has its cores before its first instruction, so the runtime counts them; the record says so,
// and this process keeps all of its own.
func TestPinned(t *testing.T) {
	allowed, err := allowedCores()
	if err != nil {
		t.Fatal(err)
	}
	first, last := allowed[0], allowed[len(allowed)-1]
	s := newStage(t, "")
	s.cfg.Pin = fmt.Sprintf("frontend:%d workers:%d loadgen:%d", first, last, first)
	if s.cfg.pins, _, err = s.cfg.resolvePins(); err != nil {
		t.Fatal(err)
	}
	o, err := s.one(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"frontend": first, "loadgen": first, "worker-0": last, "worker-1": last}
	seen := 0
	for _, line := range s.processes(t) {
		name, _, _ := strings.Cut(line, " ")
		if seen++; !strings.HasSuffix(line, fmt.Sprintf(" cores=%d counted=1", want[name])) {
			t.Errorf("%s, which was given core %d, runs as %s", name, want[name], line)
		}
	}
	if seen != 4 {
		t.Errorf("%d processes", seen)
	}
	for name, core := range want {
		if got := o.Run.Environment.Pins[name]; got != fmt.Sprint(core) {
			t.Errorf("environment.pins has %q for %s, want %d", got, name, core)
		}
	}
	if o.Run.Environment.CPUs != len(allowed) || len(o.Run.Environment.Pins) != 4 {
		t.Errorf("environment %+v", o.Run.Environment)
	}
	if now, err := allowedCores(); err != nil || now.String() != allowed.String() {
		t.Errorf("this process had %s and has %s, %v", allowed, now, err)
	}

	s.cfg.Pin = "frontend:1023"
	if _, _, err := s.cfg.resolvePins(); err == nil || !strings.Contains(err.Error(),
		"frontend may not use core 1023: this process has "+allowed.String()) {
		t.Error(err)
	}
}

// TestPinProcess pins one that runs already, with all of its threads.
func TestPinProcess(t *testing.T) {
	allowed, err := allowedCores()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	core := coreSet{allowed[len(allowed)-1]}
	if err := pinProcess(cmd.Process.Pid, core); err != nil {
		t.Fatal(err)
	}
	if got := coresOf(fmt.Sprint(cmd.Process.Pid)); got != core.String() {
		t.Errorf("it may use the cores %s, not %s", got, core)
	}
	if err := pinProcess(1<<30, core); err == nil {
		t.Error("a process that is not there was pinned")
	}
}
