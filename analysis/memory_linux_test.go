package main

import (
	"os"
	"syscall"
)

// peakMemory is the largest resident size of an ended process, in KiB.
func peakMemory(s *os.ProcessState) (int64, bool) {
	u, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, false
	}
	return u.Maxrss, true
}
