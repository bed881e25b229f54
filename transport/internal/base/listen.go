package base

import (
	"context"
	"errors"
	"net"

	"github.com/laneway-ai/laneway/transport"
)

// BindAll opens the n endpoints of a listener, all of them or none. The error says which one could not be opened.
func BindAll[E any](plane, bind string, n int, open func(address string) (E, error), shut func(E)) ([]E, error) {
	addresses, err := BindRange(bind, n)
	if err != nil {
		return nil, err
	}
	endpoints := make([]E, 0, n)
	for i, a := range addresses {
		e, err := open(a)
		if err != nil {
			for _, e := range endpoints {
				shut(e)
			}
			if op, ok := errors.AsType[*net.OpError](err); ok { // it names the address too
				err = op.Err
			}
			return nil, &transport.BindError{Plane: plane, Address: a, Index: i, Count: n, Err: err}
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

// Take waits for the next lane of a listener that is open until listening ends.
func Take[L any](ctx, listening context.Context, ready <-chan L) (l L, err error) {
	if listening.Err() != nil {
		return l, transport.ErrClosed
	}
	select {
	case l = <-ready:
		return l, nil
	case <-listening.Done():
		return l, transport.ErrClosed
	case <-ctx.Done():
		return l, context.Cause(ctx)
	}
}
