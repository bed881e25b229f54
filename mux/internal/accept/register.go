package accept

import (
	"net"
	"net/netip"
	"slices"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

type linkKey struct {
	peer   transport.NodeID
	number uint64
}

// register is all links, and who has them. The Links' lock guards it.
type register struct {
	maxLinks  int
	links     map[linkKey]*Link
	nodes     map[transport.NodeID][]*Link // by the NodeIDs that HELLOs name, in the order of their begin
	addresses map[netip.Prefix]int         // links of those that have had one; 0 = they have none now
}

func (r *register) init(maxLinks int) {
	r.maxLinks = maxLinks
	r.links = make(map[linkKey]*Link)
	r.nodes = make(map[transport.NodeID][]*Link)
	r.addresses = make(map[netip.Prefix]int)
}

// maxOfAddress and maxOfNode are the share of the links that one address may have, and one node that the plane proves.
// Elsewhere a NodeID is a claim and bounds nothing: else who claims it would take its links.
func (r *register) maxOfAddress() int { return max(r.maxLinks/16, 4) }
func (r *register) maxOfNode() int    { return max(r.maxLinks/64, 4) }

// maxAddresses is how many addresses are remembered; a cluster has fewer frontends.
const maxAddresses = 4096

// addressOf tells one party's address from another's: the IP address; of IPv6 the network of 64 bits, as who has one
// address of it has them all. Not valid if addr is no IP address.
func addressOf(addr net.Addr) netip.Prefix {
	var ip netip.Addr
	switch a := addr.(type) {
	case *net.TCPAddr:
		ip = a.AddrPort().Addr()
	case *net.UDPAddr:
		ip = a.AddrPort().Addr()
	}
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLinkLocalUnicast() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // not valid where ip is not
	return p
}

// knows says whether an address has had a link.
func (n *Links) knows(addr net.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.register.addresses[addressOf(addr)]
	return ok
}

// find finds or makes the link of a HELLO. fresh: it was made, and the caller begins it.
func (n *Links) find(h *wire.HelloBody, s *shaking) (k *Link, fresh bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return nil, false, refuse(wire.AwayClosing, "the worker closes")
	}
	if k = n.register.links[linkKey{transport.NodeID(h.Node), h.Link}]; k != nil {
		return k, false, k.admit(h, &s.info)
	}
	if h.PeerSecret != [16]byte{} {
		return nil, false, unknownLink(h)
	}
	if h.Received > 0 {
		return nil, false, refuse(wire.AwayProtocol, "HELLO says %d bytes received on a link that is new", h.Received)
	}
	r := &n.register
	if err := r.room(transport.NodeID(h.Node), &s.info); err != nil {
		return nil, false, err
	}
	k = n.newLink(h, s)
	r.add(k)
	return k, true, nil
}

func unknownLink(h *wire.HelloBody) error {
	return refuse(wire.AwayUnknownLink, "unknown link %d of node %s", h.Link, transport.NodeID(h.Node))
}

// room says whether a new link is within all bounds.
func (r *register) room(peer transport.NodeID, info *transport.ConnInfo) error {
	if len(r.links) >= r.maxLinks {
		return refuse(wire.AwayLimit, "%d links are open, no more are allowed", len(r.links))
	}
	p := addressOf(info.Remote)
	if have := r.addresses[p]; have >= r.maxOfAddress() {
		return refuse(wire.AwayLimit, "%d links of address %s are open, no more are allowed", have, p)
	}
	have := 0
	for _, k := range r.nodes[peer] {
		if k.proven {
			have++
		}
	}
	if info.Proven && have >= r.maxOfNode() {
		return refuse(wire.AwayLimit, "%d links of node %s are open, no more are allowed", have, peer)
	}
	return nil
}

// add adds a new link. Of too many addresses one that has no link is forgotten, whichever: who wants a certain one
// forgotten has to begin thousands of links.
func (r *register) add(k *Link) {
	r.links[linkKey{k.peer, k.number}] = k
	r.nodes[k.peer] = append(r.nodes[k.peer], k)
	if !k.address.IsValid() {
		return
	}
	r.addresses[k.address]++
	if len(r.addresses) <= maxAddresses {
		return
	}
	for p, links := range r.addresses {
		if links == 0 {
			delete(r.addresses, p)
			return
		}
	}
}

// begin has the layer above begin a new link, and shows it to everybody.
func (n *Links) begin(k *Link) {
	k.streams = n.owner.Begin(k)
	for i, l := range k.lanes {
		l.pipe = pipe.New(n.cfg.Pipe, k.streams.Lane(i), l)
	}
	n.mu.Lock()
	n.publish(append(slices.Clone(n.Links()), k))
	draining, listeners := n.draining, n.listeners
	n.mu.Unlock()
	if draining != "" {
		for _, l := range k.lanes {
			l.pipe.Drain(draining)
		}
	}
	for _, ln := range listeners {
		ln.Vouch(k.remote)
	}
	k.begun.Store(true)
	for _, l := range k.lanes {
		<-l.turn
	}
	n.log.Info("a link has begun", "link", k.number, "peer", k.peer, "remote", k.remote, "lanes", len(k.lanes))
}

// publish sets what Links and Pipes give. The lock is held.
func (n *Links) publish(links []*Link) {
	var pipes []*pipe.Pipe
	for _, k := range links {
		for _, l := range k.lanes {
			pipes = append(pipes, l.pipe)
		}
	}
	n.links.Store(&links)
	n.pipes.Store(&pipes)
}

// forget takes an ended link out.
func (n *Links) forget(k *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &n.register
	delete(r.links, linkKey{k.peer, k.number})
	if rest := slices.DeleteFunc(r.nodes[k.peer], func(o *Link) bool { return o == k }); len(rest) > 0 {
		r.nodes[k.peer] = rest
	} else {
		delete(r.nodes, k.peer)
	}
	if k.address.IsValid() {
		r.addresses[k.address]--
	}
	n.publish(slices.DeleteFunc(slices.Clone(n.Links()), func(o *Link) bool { return o == k }))
}
