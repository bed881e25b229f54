package transport

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Reasons of an AddressError, as they stand in metrics.
const (
	AddressMalformed   = "malformed"
	AddressUnspecified = "unspecified"
	AddressMulticast   = "multicast"
	AddressLinkLocal   = "link-local"
	AddressReserved    = "reserved"
	AddressLoopback    = "loopback" // of another host
)

// AddressError says why nobody can be reached at an address.
type AddressError struct {
	Address string
	Reason  string // one of the Address constants
}

func (e *AddressError) Error() string {
	why := map[string]string{
		AddressMalformed:   "is no host and port that can be dialled",
		AddressUnspecified: "is a wildcard: it is no place that anyone can dial",
		AddressMulticast:   "is a multicast group, not a host",
		AddressLinkLocal:   "is link-local: it means something on one network segment only, and is not routed",
		AddressReserved:    "is reserved and not routed",
		AddressLoopback: "is a loopback address, and the node that advertises it is on another host or in another " +
			"network namespace",
	}[e.Reason]
	return fmt.Sprintf("transport: address %s %s; the worker must advertise an address of its host that frontends "+
		"can reach (AdvertiseAddr)", e.Address, why)
}

// reserved are ranges that no router forwards and that netip has no method for.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),   // "this network"
	netip.MustParsePrefix("240.0.0.0/4"), // future use, and the broadcast address
	netip.MustParsePrefix("100::/64"),    // discard
}

// CheckAddress says with an *AddressError why a peer on another host can never reach address, which is host:port or a
// host alone. Names are taken as they are: what they mean is found out when they are dialled. Loopback addresses pass;
// see CheckLoopback.
func CheckAddress(address string) error {
	bad := func(reason string) error { return &AddressError{Address: address, Reason: reason} }
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
		if strings.Contains(host, ":") && !isIP(host) {
			return bad(AddressMalformed)
		}
	} else if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return bad(AddressMalformed)
	}
	if host == "" {
		return bad(AddressUnspecified)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		if strings.ContainsAny(host, ":/[]% ") {
			return bad(AddressMalformed)
		}
		return nil // a name
	}
	ip = ip.Unmap()
	switch {
	case ip.IsUnspecified():
		return bad(AddressUnspecified)
	case ip.IsMulticast():
		return bad(AddressMulticast)
	case ip.IsLinkLocalUnicast() || ip.Zone() != "":
		return bad(AddressLinkLocal)
	}
	for _, p := range reserved {
		if p.Contains(ip) {
			return bad(AddressReserved)
		}
	}
	return nil
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// IsLoopback says whether an address, host:port or a host alone, reaches only processes on its own host.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// CheckLoopback refuses a loopback address of a node whose network stack is another one than this process's. Stacks are
// named by LocalNetwork; what is not known passes.
func CheckLoopback(address, theirs, ours string) error {
	if theirs == "" || ours == "" || theirs == ours || !IsLoopback(address) {
		return nil
	}
	return &AddressError{Address: address, Reason: AddressLoopback}
}
