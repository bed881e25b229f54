//go:build !linux

package udp

import (
	"context"
	"errors"
)

var errLinux = errors.New("bench udp needs Linux: it measures system calls of its kernel")

// Pacing is what the kernel made of one option that hands pacing to it.
type Pacing struct{ Option, Asked, ReadBack, Measured, Note string }

// Measure needs Linux.
func Measure(context.Context, Config) ([]Run, error) { return nil, errLinux }

// Pacings needs Linux.
func Pacings() ([]Pacing, error) { return nil, errLinux }
