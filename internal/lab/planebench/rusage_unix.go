//go:build unix

package planebench

import "golang.org/x/sys/unix"

func rusage() (user, system, switches int64) {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		return 0, 0, 0
	}
	return r.Utime.Nano(), r.Stime.Nano(), int64(r.Nvcsw) + int64(r.Nivcsw)
}
