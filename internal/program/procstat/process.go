package procstat

import (
	"os"
	"time"

	"github.com/prometheus/procfs"
)

// CPU is the processor time of a process, all of its threads together, ended ones too; of its children none.
type CPU struct{ User, System time.Duration }

// Total is user and system time.
func (c CPU) Total() time.Duration { return c.User + c.System }

// Sub is the time that was used since an earlier reading.
func (c CPU) Sub(earlier CPU) CPU {
	return CPU{User: c.User - earlier.User, System: c.System - earlier.System}
}

// clockTick is the unit of times in /proc/PID/stat; it is 10 ms on every Linux port that Go runs on.
const clockTick = 10 * time.Millisecond

// ReadCPU reads the processor time of a process: in microseconds for Self, in steps of 10 ms for others.
func ReadCPU(pid int) (CPU, bool) {
	if pid == Self || pid == os.Getpid() {
		if c, ok := selfCPU(); ok {
			return c, true
		}
	}
	p, ok := proc(pid)
	if !ok {
		return CPU{}, false
	}
	s, err := p.Stat()
	if err != nil {
		return CPU{}, false
	}
	return CPU{User: time.Duration(s.UTime) * clockTick, System: time.Duration(s.STime) * clockTick}, true
}

// RSSPeak is the largest resident set that a process has had, in bytes.
func RSSPeak(pid int) (int64, bool) {
	p, ok := proc(pid)
	if !ok {
		return 0, false
	}
	s, err := p.NewStatus()
	if err != nil || s.VmHWM == 0 { // a zombie has no memory left to read
		return 0, false
	}
	return int64(s.VmHWM), true
}

// StartTime is when a process was started, to about a second. Together with the pid it names one life of a process.
func StartTime(pid int) (time.Time, bool) {
	p, ok := proc(pid)
	if !ok {
		return time.Time{}, false
	}
	s, err := p.Stat()
	if err != nil {
		return time.Time{}, false
	}
	fs, err := procfs.NewFS(procfs.DefaultMountPoint)
	if err != nil {
		return time.Time{}, false
	}
	host, err := fs.Stat()
	if err != nil || host.BootTime == 0 {
		return time.Time{}, false
	}
	return time.Unix(int64(host.BootTime), 0).Add(time.Duration(s.Starttime) * clockTick), true
}
