// Package procstat reads what the kernel knows about processes, UDP sockets and the host. What cannot be read is
// absent (ok is false), never zero: a report must not show a figure that nobody measured. All functions may be called
// concurrently; each call reads anew.
//
// Figures of a process take its pid; Self is the calling process.
package procstat

import (
	"os"

	"github.com/prometheus/procfs"
)

// Self stands for the calling process wherever a pid is taken.
const Self = 0

func pidOf(pid int) int {
	if pid == Self {
		return os.Getpid()
	}
	return pid
}

func proc(pid int) (procfs.Proc, bool) {
	fs, err := procfs.NewFS(procfs.DefaultMountPoint)
	if err != nil {
		return procfs.Proc{}, false
	}
	p, err := fs.Proc(pidOf(pid))
	return p, err == nil
}
