//go:build !linux

package outpath

import "errors"

// Hangups is for Linux. Elsewhere the server's own read finds out that a client has left, unless bytes lie before that.
type Hangups struct{}

// NewHangups fails.
func NewHangups() (*Hangups, error)    { return nil, errors.ErrUnsupported }
func (*Hangups) Close() error          { return nil }
func (*Hangups) add(*Conn) (id uint64) { return 0 }
func (*Hangups) remove(uint64)         {}
