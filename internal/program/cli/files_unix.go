//go:build unix

package cli

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// RaiseFiles raises the soft limit of open files to the hard one. Go's runtime does so for itself but takes it back for
// the processes that it starts; this holds for them too.
func RaiseFiles() error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	soft := l.Cur
	l.Cur = l.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("raise the limit of open files from %d to %d: %w", soft, l.Max, err)
	}
	return nil
}

// FileLimit is how many files the process may have open; false where that is not known.
func FileLimit() (uint64, bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return uint64(l.Cur), true
}
