//go:build unix

package procstat

import (
	"time"

	"golang.org/x/sys/unix"
)

func selfCPU() (CPU, bool) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return CPU{}, false
	}
	return CPU{User: time.Duration(r.Utime.Nano()), System: time.Duration(r.Stime.Nano())}, true
}
