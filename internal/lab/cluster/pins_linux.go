package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuRoot is where the kernel describes the cores.
const cpuRoot = "/sys/devices/system/cpu"

// allowedCores are the hardware threads that this process may use.
func allowedCores() (coreSet, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil {
		return nil, fmt.Errorf("the cores of this process cannot be read: %w", os.NewSyscallError("sched_getaffinity",
			err))
	}
	var out coreSet
	for i := 0; i <= maxCore; i++ {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}

// physicalCores groups hardware threads that share a core, in ascending order of their first. Where the kernel does not
// say, each is a core of its own.
func physicalCores(root string, allowed coreSet) []coreSet {
	var out []coreSet
	seen := map[int]bool{}
	for _, n := range allowed {
		if seen[n] {
			continue
		}
		core := coreSet{n}
		if b, err := os.ReadFile(filepath.Join(root, "cpu"+strconv.Itoa(n), "topology",
			"thread_siblings_list")); err == nil {
			if all, err := parseCores(strings.TrimSpace(string(b))); err == nil {
				for _, m := range all {
					if m != n && slices.Contains(allowed, m) && !seen[m] {
						core = append(core, m)
					}
				}
			}
		}
		for _, m := range core {
			seen[m] = true
		}
		slices.Sort(core)
		out = append(out, core)
	}
	return out
}

func (c coreSet) cpuSet() *unix.CPUSet {
	set := new(unix.CPUSet)
	for _, n := range c {
		set.Set(n)
	}
	return set
}

// onCores calls f while the calling thread, and what f starts, is kept to the cores. clean says that the thread has its
// own cores again.
func onCores(c coreSet, f func() error) (clean bool, err error) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return true, os.NewSyscallError("sched_getaffinity", err)
	}
	if err := unix.SchedSetaffinity(0, c.cpuSet()); err != nil {
		return true, fmt.Errorf("cores %s: %w", c, os.NewSyscallError("sched_setaffinity", err))
	}
	err = f()
	return unix.SchedSetaffinity(0, &own) == nil, err
}

// pinProcess keeps all threads of a running process to the cores. A thread that is made meanwhile has its maker's
// cores, so the threads are gone over until all have these.
func pinProcess(pid int, c coreSet) error {
	want := c.cpuSet()
	for range 100 {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		done := true
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			var have unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &have); err == nil && have == *want {
				continue
			}
			done = false
			if err := unix.SchedSetaffinity(tid, want); err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
		if done {
			return nil
		}
		runtime.Gosched()
	}
	return fmt.Errorf("process %d makes threads faster than they can be pinned", pid)
}
