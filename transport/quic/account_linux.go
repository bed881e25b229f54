package quic

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// connection is what an account asks of a *quicgo.Conn.
type connection interface {
	ConnectionStats() quicgo.ConnectionStats
	Context() context.Context
}

// account sets the datagrams of one sender against what its connection has received. A lane of ours has a socket of its
// own, so a sender is one connection. Another client may have several on one socket: they are judged together.
type account struct {
	addr  *net.UDPAddr
	conns atomic.Pointer[connections] // nil = none is through its handshake

	// Of the reader alone.
	in   int64     // datagrams that were handed to quic-go
	skew int64     // of them, those that will not be received any more, and less those that count twice
	set  uint64    // the connections that skew is of
	due  int64     // at which in to look at the queue again
	rest time.Time // until when not to wait for it
}

// connections are those of one sender. They do not change.
type connections struct {
	set  uint64 // differs from the set before
	list []connection
}

// queued is how many datagrams wait in quic-go, at most, and how many it has received; false if nobody can tell.
// quic-go counts a packet when it has taken it out of the queue and it is whole.
func (a *account) queued() (queued, received int64, ok bool) {
	cs := a.conns.Load()
	if cs == nil {
		return 0, 0, false
	}
	for _, c := range cs.list {
		if c.Context().Err() != nil {
			return 0, 0, false
		}
		received += int64(c.ConnectionStats().PacketsReceived)
	}
	if cs.set != a.set {
		if a.set != 0 { // those before have left some, and took their counts with them
			a.skew = a.in - received
		}
		a.set = cs.set
	}
	queued = a.in - received - a.skew
	if queued < 0 { // a datagram that came before its keys counts twice
		a.skew += queued
		queued = 0
	}
	return queued, received, true
}

// maxAccounts is how many senders an endpoint remembers before it forgets those that have no lane. Anybody can be a
// sender.
const maxAccounts = 4096

// accounts is the accounts of a socket.
type accounts struct {
	mu   sync.Mutex
	by   map[netip.AddrPort]*account
	most int    // senders at which to forget
	sets uint64 // connections.set that were given away
}

// of is the account of a sender. addr is the sender as quic-go gets it; nil = made of ap.
func (s *accounts) of(ap netip.AddrPort, addr *net.UDPAddr) *account {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locked(ap, addr)
}

func (s *accounts) locked(ap netip.AddrPort, addr *net.UDPAddr) *account {
	if a := s.by[ap]; a != nil {
		return a
	}
	if s.by == nil {
		s.by, s.most = make(map[netip.AddrPort]*account), maxAccounts
	}
	if len(s.by) >= s.most {
		for k, a := range s.by {
			if a.conns.Load() == nil {
				delete(s.by, k)
			}
		}
		s.most = len(s.by) + maxAccounts
	}
	if addr == nil {
		addr = net.UDPAddrFromAddrPort(ap)
	}
	a := &account{addr: addr}
	s.by[ap] = a
	return a
}

// joins says that a connection is through its handshake, and leave that nobody reads from it any more. When its client
// has moved to another address, what it sends from there is not judged.
func (s *accounts) joins(addr *net.UDPAddr, c connection) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.locked(addr.AddrPort(), addr)
	s.change(a, func(list []connection) []connection { return append(list, c) })
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.change(a, func(list []connection) []connection {
			return slices.DeleteFunc(list, func(x connection) bool { return x == c })
		})
	})
}

func (s *accounts) change(a *account, how func([]connection) []connection) {
	var list []connection
	if cs := a.conns.Load(); cs != nil {
		list = slices.Clone(cs.list)
	}
	if list = how(list); len(list) == 0 {
		a.conns.Store(nil)
		return
	}
	s.sets++
	a.conns.Store(&connections{set: s.sets, list: list})
}
