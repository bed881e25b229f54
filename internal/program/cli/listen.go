package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Listen opens the TCP address that a flag gives. It fails with a *FlagError that names flag, address and the fix.
func Listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		return l, nil
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = fmt.Errorf("the port is in use: stop the program that has it, or choose another port (0 lets the "+
			"kernel choose): %w", err)
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("this user may not listen there: choose a port from 1024 up: %w", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		err = fmt.Errorf("this host does not have the address: use one of its own, or none (:9090) for all: %w", err)
	case errors.As(err, &dns):
		err = fmt.Errorf("the host name cannot be resolved: use an address of this host, or none (:9090) for all: %w",
			err)
	}
	return nil, &FlagError{Flag: flag, Where: "--" + flag, Value: quote(redact.Address(addr)), Err: err}
}
