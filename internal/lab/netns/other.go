//go:build !linux

package netns

import (
	"context"
	"net"
	"net/netip"
	"runtime"
)

// Network is a set of namespaces; this system has none.
type Network struct{}

// Node is one namespace.
type Node struct {
	Name, Namespace string
	Addr4, Addr6    netip.Addr
	Interface, Port string
}

// Check returns a *MissingError: only Linux has network namespaces.
func Check() error {
	return &MissingError{What: "only Linux has them, this is " + runtime.GOOS}
}

// Make returns what Check does.
func Make(context.Context, Config) (*Network, error) { return nil, Check() }

// RemoveStale finds nothing.
func RemoveStale(context.Context) ([]string, error) { return nil, nil }

// Hub is nil here.
func (n *Network) Hub() *Node { return nil }

// Node is nil here.
func (n *Network) Node(string) *Node { return nil }

// Close does nothing.
func (n *Network) Close() error { return nil }

// Do returns what Check does.
func (d *Node) Do(func() error) error { return Check() }

// IP returns what Check does.
func (d *Node) IP(context.Context, ...string) error { return Check() }

// Dial returns what Check does.
func (d *Node) Dial(context.Context, string, string) (net.Conn, error) { return nil, Check() }

// Listen returns what Check does.
func (d *Node) Listen(context.Context, string, string) (net.Listener, error) { return nil, Check() }
