//go:build unix

package transport

import "syscall"

// FileLimit is how many files this process may have open now (the soft RLIMIT_NOFILE). ok is false where that is not
// known or without bound.
func FileLimit() (limit uint64, ok bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	limit = uint64(r.Cur)
	return limit, limit < 1<<40
}
