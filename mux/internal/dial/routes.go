package dial

import (
	"errors"
	"fmt"
	"slices"

	"github.com/laneway-ai/laneway/transport"
)

// NoPlaneError says that a peer and this node share no plane.
type NoPlaneError struct {
	Peer   transport.NodeID
	Theirs []string
	Ours   []string
}

func (e *NoPlaneError) Error() string {
	return fmt.Sprintf("mux: node %s offers the planes %v, this node uses %v: start both with one in common",
		e.Peer, e.Theirs, e.Ours)
}

// NoAddressError says that nobody can be reached at any address of a node on a plane that both sides have.
type NoAddressError struct {
	Peer    transport.NodeID
	Refused []*transport.AddressError
}

func (e *NoAddressError) Error() string {
	return fmt.Sprintf("mux: node %s has no address that this node can dial: %v", e.Peer, errors.Join(e.Unwrap()...))
}

// Unwrap gives the *transport.AddressErrors.
func (e *NoAddressError) Unwrap() (errs []error) {
	for _, a := range e.Refused {
		errs = append(errs, a)
	}
	return errs
}

func (r *Peers) planeNames() (names []string) {
	for _, t := range r.transports {
		names = append(names, t.Plane())
	}
	return names
}

// route is a transport and the peer's endpoints on its plane that can be dialled.
type route struct {
	transport transport.Transport
	endpoints []string
}

func (r route) plane() string { return r.transport.Plane() }

// rank is the place of a plane among routes, -1 if it is not there.
func rank(routes []route, plane string) int {
	return slices.IndexFunc(routes, func(r route) bool { return r.plane() == plane })
}

// shared lists the planes that both have, in this node's order.
func (r *Peers) shared(p Peer) (routes []route) {
	for _, t := range r.transports {
		for _, q := range p.Planes {
			if q.Plane != t.Plane() {
				continue
			}
			var good []string
			for _, a := range q.Endpoints {
				if r.checkAddress(p, a) == nil {
					good = append(good, a)
				}
			}
			if len(good) > 0 {
				routes = append(routes, route{t, good})
			}
		}
	}
	return routes
}

// checkAddress says why an address of a node is not dialled.
func (r *Peers) checkAddress(p Peer, address string) *transport.AddressError {
	var bad *transport.AddressError
	if errors.As(transport.CheckAddress(address), &bad) ||
		errors.As(transport.CheckLoopback(address, p.Network, r.network), &bad) {
		return bad
	}
	return nil
}

// badAddresses are those of the planes that both sides have.
func (r *Peers) badAddresses(p Peer) (bad []*transport.AddressError) {
	for _, q := range p.Planes {
		if !slices.Contains(r.planeNames(), q.Plane) {
			continue
		}
		for _, a := range q.Endpoints {
			if err := r.checkAddress(p, a); err != nil {
				bad = append(bad, err)
			}
		}
	}
	return bad
}

// unusable says why a node without a route has none.
func (r *Peers) unusable(p Peer) error {
	if bad := r.badAddresses(p); len(bad) > 0 {
		return &NoAddressError{Peer: p.ID, Refused: bad}
	}
	e := &NoPlaneError{Peer: p.ID, Ours: r.planeNames()}
	for _, q := range p.Planes {
		e.Theirs = append(e.Theirs, q.Plane)
	}
	return e
}
