//go:build unix

package lanes

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU is what this process has used.
func ProcessCPU() (user, system time.Duration) {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}
