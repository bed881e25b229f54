package loadgen

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSharedCores: a server that is kept to other cores shares none, one that may use a core of ours does.
func TestSharedCores(t *testing.T) {
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &mine); err != nil {
		t.Fatal(err)
	}
	own, ok := allowedCores("self")
	if !ok || len(own) != mine.Count() {
		t.Fatalf("allowed cores %v, the kernel says %d", own, mine.Count())
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), listenEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = strings.TrimSpace(addr)
	if shared, _ := sharedCores(addr); !shared {
		t.Error("not shared with a process that may use the same cores")
	}
	if shared, _ := sharedCores("192.0.2.1:80"); shared {
		t.Error("shared with another host")
	}
	if len(own) < 2 {
		t.Skip("one core cannot be divided")
	}
	// The server gets one core, this process's main thread, which its status is of, the others.
	cores := slices.Sorted(maps.Keys(own))
	pin := func(pid int, cores ...int) {
		t.Helper()
		var set unix.CPUSet
		for _, c := range cores {
			set.Set(c)
		}
		if err := unix.SchedSetaffinity(pid, &set); err != nil {
			t.Fatal(err)
		}
	}
	pin(os.Getpid(), cores[1:]...)
	defer pin(os.Getpid(), cores...)
	if shared, why := sharedCores(addr); !shared || !strings.Contains(why, fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("not shared with a process that may use every core: %q", why)
	}
	pin(cmd.Process.Pid, cores[0])
	if shared, why := sharedCores(addr); shared {
		t.Errorf("shared with a process on other cores: %s", why)
	}
}

func TestParseCores(t *testing.T) {
	for s, want := range map[string]string{"0-2,5\n": "[0 1 2 5]", "7": "[7]", "": "[]", "x": "[]", "1-": "[]"} {
		cores, ok := parseCores(s)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(cores))); got != want || ok != (want != "[]") {
			t.Errorf("%q: %s %v", s, got, ok)
		}
	}
}
