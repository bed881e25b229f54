package planeflags

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/transport"
)

// validHost takes a name or an IP address without a port; the ports are those that were bound.
func validHost(s string) error {
	if _, err := netip.ParseAddr(s); err != nil && strings.ContainsAny(s, ":/[] ") {
		return errors.New("is not a host: write a name or an IP address without a port")
	}
	if bad, ok := errors.AsType[*transport.AddressError](transport.CheckAddress(s)); ok {
		return errors.New("is " + bad.Reason +
			", no address that anyone can dial: use the address of an interface, or a host name")
	}
	return nil
}

// checkBind looks at where a worker listens.
func (f *Flags) checkBind() error {
	host, p, err := net.SplitHostPort(*f.bindAddr)
	if err != nil {
		return nil // the flag has said so
	}
	var errs []error
	bad, _ := errors.AsType[*transport.AddressError](transport.CheckAddress(host))
	switch {
	case host == "" || bad == nil || bad.Reason == transport.AddressUnspecified:
	case bad.Reason == transport.AddressMulticast || bad.Reason == transport.AddressReserved:
		errs = append(errs, fmt.Errorf("--bind-addr %s is %s: lanes need the address of an interface, or a wildcard",
			*f.bindAddr, bad.Reason))
	case *f.advertiseAddr == "":
		errs = append(errs,
			fmt.Errorf("--bind-addr %s is %s, no address that frontends can dial: say with --advertise-addr what "+
				"they should, or bind another one", *f.bindAddr, bad.Reason))
	}
	port, err := strconv.Atoi(p)
	if err != nil || port == 0 {
		return errors.Join(errs...)
	}
	if port+*f.serverEndpoints-1 > 65535 {
		errs = append(errs,
			fmt.Errorf("--bind-addr %s with --server-endpoints %d ends above port 65535: use port %d or less",
				*f.bindAddr, *f.serverEndpoints, 65536-*f.serverEndpoints))
	}
	if slices.Contains(*f.planes, transport.PlaneTCP) && slices.Contains(*f.planes, transport.PlaneTLS) {
		errs = append(errs,
			fmt.Errorf("--bind-addr %s has a fixed port, which the planes tcp and tls would both take: use port 0, "+
				"or one of the two planes", *f.bindAddr))
	}
	return errors.Join(errs...)
}
