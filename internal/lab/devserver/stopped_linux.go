package devserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// stopWithin bounds how long the threads of a process may take to stop: the signal is delivered to each as it runs.
const stopWithin = 10 * time.Second

// awaitStopped waits until every thread of a process has stopped.
func awaitStopped(pid int) error {
	for deadline := time.Now().Add(stopWithin); ; time.Sleep(time.Millisecond) {
		running, err := runningThreads(pid)
		if err != nil || running == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("devserver: %d threads of process %d have not stopped within %v", running, pid,
				stopWithin)
		}
	}
}

// runningThreads counts the threads of a process that are not stopped.
func runningThreads(pid int) (n int, err error) {
	stats, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		// pid (name) state ...; the name may hold anything, so the state follows the last parenthesis.
		if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) && b[i+2] != 'T' && b[i+2] != 'Z' {
			n++
		}
	}
	return n, nil
}
