//go:build !linux

package outpath

import "errors"

type ring struct{}

func newRing(uint32) (*ring, error)                 { return nil, errors.ErrUnsupported }
func newArena(int) ([]byte, error)                  { return nil, errors.ErrUnsupported }
func freeArena([]byte)                              {}
func (*ring) send(int, []byte, uint64)              {}
func (*ring) submit(int, func(uint64, int32)) error { return errors.ErrUnsupported }
func (*ring) probe([]byte) error                    { return errors.ErrUnsupported }
func (*ring) close() error                          { return nil }
