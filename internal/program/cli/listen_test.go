package cli

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestListenNamesFlagAddressAndFix(t *testing.T) {
	first, err := Listen(context.Background(), "admin-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	addr := first.Addr().String()
	_, err = Listen(context.Background(), "admin-addr", addr)
	var fe *FlagError
	if !errors.As(err, &fe) || !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), "--admin-addr "+
		addr+": the port is in use: stop") {
		t.Errorf("port in use: %v", err)
	}
	if _, err = Listen(context.Background(), "http-addr", "203.0.113.77:0"); err == nil ||
		!strings.HasPrefix(err.Error(), "--http-addr 203.0.113.77:0: this host does not have the address") {
		t.Errorf("foreign address: %v", err)
	}
}
