//go:build unix

package lanes

import (
	"time"

	"golang.org/x/sys/unix"
)

// processCPU is what this process has used, user and system.
func processCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
