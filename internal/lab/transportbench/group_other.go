//go:build !linux

package transportbench

import (
	"context"
	"errors"
)

type group struct{ address string }

func openGroup(context.Context, string, Spec) (*group, error) {
	return nil, errors.New("sockets that share a port are measured on Linux only")
}

func (g *group) drops(*Drops) {}
func (g *group) close() error { return nil }
