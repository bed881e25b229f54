//go:build unix && !linux

package tcp

// segments is empty: x/sys has no writev for all of these systems, so each segment is a call.
type segments struct{}

func (segments) send(fd int, rest [][]byte, off int) (n, want int, err error) {
	return sendOne(fd, rest, off)
}
