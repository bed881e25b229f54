package main

import (
	"errors"

	"github.com/laneway-ai/laneway/transport"
)

// built is what a plane of either kind stands on: its transports, how it is taken down again, and how it fails.
type built struct {
	transports []transport.Transport
	failed     chan error
	undo       []func() error // in the order of construction
}

func newBuilt() built { return built{failed: make(chan error, 1)} }

// fail reports the first reason to give up.
func (b *built) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

func (b *built) Failed() <-chan error { return b.failed }

// Close takes everything down, the last built first.
func (b *built) Close() error {
	var errs []error
	for i := len(b.undo) - 1; i >= 0; i-- {
		errs = append(errs, b.undo[i]())
	}
	b.undo = nil
	return errors.Join(errs...)
}

func (b *built) sockets() []transport.SocketInfo {
	var all []transport.SocketInfo
	for _, t := range b.transports {
		all = append(all, t.Sockets()...)
	}
	return all
}
