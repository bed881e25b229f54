package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

const (
	// DefaultMTU is that of Ethernet.
	DefaultMTU = 1500
	// MaxNodes is how many ports a bridge of the kernel has, less some.
	MaxNodes = 1000

	minMTU = 1280 // of IPv6
	maxMTU = 65535
)

// The addresses are those that RFC 2544 and RFC 5180 set aside for tests of networks; they exist inside the namespaces
// only. The hub has number 1, node i has number i+2.
var (
	prefix4 = netip.MustParsePrefix("198.18.0.0/16")
	prefix6 = netip.MustParsePrefix("2001:2::/64")
)

// Config says what is made. It is passed by value.
type Config struct {
	// Nodes are the names of the namespaces beside the hub: letters, digits and dashes, 1 to 32 of them, each once. 1
	// to MaxNodes nodes.
	Nodes []string
	// MTU of every interface in bytes, 1280 to 65535; 0 means 1500.
	MTU int
	// IPv6 gives every node an IPv6 address too.
	IPv6 bool
}

var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

const hubName = "hub"

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if len(c.Nodes) < 1 || len(c.Nodes) > MaxNodes {
		errs = append(errs, fmt.Errorf("netns: %d nodes: a bridge joins 1 to %d", len(c.Nodes), MaxNodes))
	}
	for i, n := range c.Nodes {
		switch {
		case !nodeName.MatchString(n):
			errs = append(errs, fmt.Errorf("netns: node %q: use 1 to 32 lower-case letters, digits and dashes inside",
				n))
		case n == hubName || slices.Contains(c.Nodes[:i], n):
			errs = append(errs, fmt.Errorf("netns: node %q: the name is taken", n))
		}
	}
	if c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU) {
		errs = append(errs, fmt.Errorf("netns: MTU %d: use %d to %d bytes, or 0 for %d", c.MTU, minMTU, maxMTU,
			DefaultMTU))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MTU == 0 {
		c.MTU = DefaultMTU
	}
	return c
}

// address is the n-th of a prefix, whose last two bytes are free.
func address(p netip.Prefix, n int) netip.Addr {
	b := p.Addr().AsSlice()
	b[len(b)-2], b[len(b)-1] = byte(n>>8), byte(n)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// MissingError says what this machine or this process lacks to make namespaces.
type MissingError struct {
	What string // what is missing, and what helps
	Err  error  // how it was noticed; may be nil
}

func (e *MissingError) Error() string {
	s := "network namespaces cannot be made: " + e.What
	if e.Err != nil {
		s += " (" + e.Err.Error() + ")"
	}
	return s
}

func (e *MissingError) Unwrap() error { return e.Err }
