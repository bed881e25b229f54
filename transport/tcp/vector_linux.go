package tcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSegments is how many segments one call takes, at most. A batch has few, as they are long; IOV_MAX is 1,024.
const maxSegments = 256

// segments is the table that the kernel reads a write's segments from.
type segments struct{ iovs []unix.Iovec }

// send is one call of the kernel, for as many segments as it takes. want is how many bytes they have.
func (s *segments) send(fd int, rest [][]byte, off int) (n, want int, err error) {
	if len(rest) == 1 {
		return sendOne(fd, rest, off)
	}
	s.iovs = s.iovs[:0]
	for _, b := range rest {
		b, off = b[off:], 0
		if len(b) == 0 {
			continue
		}
		if len(s.iovs) == maxSegments {
			break
		}
		v := unix.Iovec{Base: unsafe.SliceData(b)}
		v.SetLen(len(b))
		s.iovs = append(s.iovs, v)
		want += len(b)
	}
	r, _, errno := unix.Syscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&s.iovs[0])), uintptr(len(s.iovs)))
	clear(s.iovs) // they are the caller's again
	if errno != 0 {
		return 0, want, errno
	}
	return int(r), want, nil
}
