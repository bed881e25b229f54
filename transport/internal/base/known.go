package base

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
)

// maxKnown is how many addresses are remembered; a cluster has fewer frontends. The one that was named longest ago
// goes first.
const maxKnown = 4096

// Known is the addresses of nodes that have had a link. The zero value is empty.
type Known struct {
	mu    sync.Mutex
	at    map[netip.Addr]*list.Element
	order list.List // of netip.Addr, newest first
}

// Vouch remembers the host at addr. Addresses that are no IP address are not looked at.
func (k *Known) Vouch(addr net.Addr) {
	host := Host(addr)
	if !host.IsValid() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.at[host]; e != nil {
		k.order.MoveToFront(e)
		return
	}
	if k.at == nil {
		k.at = make(map[netip.Addr]*list.Element)
	}
	if k.order.Len() == maxKnown {
		delete(k.at, k.order.Remove(k.order.Back()).(netip.Addr))
	}
	k.at[host] = k.order.PushFront(host)
}

// has says whether the host is remembered.
func (k *Known) has(host netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at[host] != nil
}

// Host is what tells one peer's address from another's: the IP address without its port; of IPv6 the network of 64
// bits, as who has one address of it has them all. It is not valid if addr is no IP address.
func Host(addr net.Addr) netip.Addr {
	var ip netip.Addr
	switch a := addr.(type) {
	case *net.TCPAddr:
		ip = a.AddrPort().Addr()
	case *net.UDPAddr:
		ip = a.AddrPort().Addr()
	}
	ip = ip.Unmap()
	if p, err := ip.WithZone("").Prefix(64); err == nil && ip.Is6() && !ip.IsLinkLocalUnicast() {
		return p.Addr()
	}
	return ip
}
