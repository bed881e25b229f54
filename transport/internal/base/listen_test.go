package base

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

// TestBindAllOrNone: what was opened before the endpoint that fails is shut again, and the error names that one.
func TestBindAllOrNone(t *testing.T) {
	inUse := errors.New("in use")
	var opened, shut []string
	open := func(a string) (string, error) {
		if a == "h:7002" {
			return "", &net.OpError{Op: "listen", Err: inUse}
		}
		opened = append(opened, a)
		return a, nil
	}
	got, err := BindAll("p", "h:7000", 2, open, func(a string) { shut = append(shut, a) })
	if err != nil || !slices.Equal(got, []string{"h:7000", "h:7001"}) || len(shut) != 0 {
		t.Errorf("%v, %v; shut %v", got, err, shut)
	}
	opened = nil
	_, err = BindAll("p", "h:7000", 4, open, func(a string) { shut = append(shut, a) })
	var bind *transport.BindError
	if !errors.As(err, &bind) || *bind != (transport.BindError{Plane: "p", Address: "h:7002", Index: 2, Count: 4,
		Err: inUse}) {
		t.Errorf("%v", err)
	}
	if !slices.Equal(opened, []string{"h:7000", "h:7001"}) || !slices.Equal(shut, opened) {
		t.Errorf("opened %v, shut %v", opened, shut)
	}
	if _, err := BindAll("p", "h:7000", 0, open, nil); err == nil {
		t.Error("no endpoints at all")
	}
}

func TestTake(t *testing.T) {
	listening, stop := context.WithCancel(t.Context())
	ready := make(chan int, 1)
	ready <- 7
	if l, err := Take(t.Context(), listening, ready); l != 7 || err != nil {
		t.Errorf("%d, %v", l, err)
	}
	why := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Take(ctx, listening, ready); err != why {
		t.Errorf("%v", err)
	}
	stop()
	ready <- 8 // what waits is not given out any more
	if _, err := Take(t.Context(), listening, ready); err != transport.ErrClosed {
		t.Errorf("%v", err)
	}
}
