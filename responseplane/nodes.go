package responseplane

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/transport"
)

// nodeEntry is one worker process and the workers on it that a registry names.
type nodeEntry struct {
	id      NodeID
	name    string
	workers int
	manual  bool      // added by AddPeer
	unused  time.Time // since when no worker names it
	// addresses are where it is said to be, the latest first. There is one unless its records disagree. When nobody
	// names the process any more the last one stays.
	addresses []*nodeAddress
	disputed  bool // the records disagree, and that was logged
	// avoid is until when workers of other processes are preferred, in unix nanoseconds.
	avoid atomic.Int64
}

// nodeAddress is one thing that is said of where a process is.
type nodeAddress struct {
	d       Descriptor
	record  string // the worker whose record said it first
	workers int    // records that say it
	manual  bool   // AddPeer said it
}

func (a *nodeAddress) named() bool { return a.workers > 0 || a.manual }

func sameAddresses(a, b Descriptor) bool {
	return a.Network == b.Network && slices.EqualFunc(a.Planes, b.Planes, func(x, y discovery.Plane) bool {
		return x.Name == y.Name && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

// address is the entry of what d says. The caller names it.
func (n *nodeEntry) address(d Descriptor, record string) *nodeAddress {
	for _, a := range n.addresses {
		if sameAddresses(a.d, d) {
			return a
		}
	}
	a := &nodeAddress{d: d, record: record}
	n.addresses = slices.Insert(n.addresses, 0, a)
	return a
}

// prune takes out what nobody says any more, except the last one, and says whether there was such.
func (n *nodeEntry) prune() bool {
	if !slices.ContainsFunc(n.addresses, (*nodeAddress).named) {
		return false
	}
	before := len(n.addresses)
	n.addresses = slices.DeleteFunc(n.addresses, func(a *nodeAddress) bool { return !a.named() })
	if len(n.addresses) == 1 {
		n.disputed = false
	}
	return len(n.addresses) < before
}

// peer is the process as the mux is told of it.
func (n *nodeEntry) peer() mux.Peer {
	var p mux.Peer
	for i, a := range n.addresses {
		q := mux.Peer{ID: n.id, Name: n.name, Network: a.d.Network}
		for _, plane := range a.d.Planes {
			q.Planes = append(q.Planes, mux.PeerPlane{Plane: plane.Name, Endpoints: plane.Endpoints})
		}
		if i == 0 {
			p = q
		} else {
			p.Alternatives = append(p.Alternatives, q)
		}
	}
	return p
}

// addNode makes a process known to the mux and has note called on its entry and on that of the addresses, with the lock
// held. A process that shares no plane, or has no address that can be dialled, is entered, too; that is the error then.
// record is what says all this, "" = nobody's.
func (f *Frontend) addNode(d Descriptor, record string, note func(*nodeEntry, *nodeAddress)) (NodeID, error) {
	if err := d.Validate(); err != nil {
		return NodeID{}, err
	}
	id, err := transport.ParseNodeID(d.ID)
	if err != nil {
		return NodeID{}, err
	}
	if id.IsZero() {
		return NodeID{}, errors.New("responseplane: node.id is all zeros: each process has an identity of its own")
	}
	f.mu.Lock()
	n := f.nodes[id]
	if n == nil {
		n = &nodeEntry{id: id}
		f.nodes[id] = n
	}
	n.name = d.Name
	a := n.address(d, record)
	note(n, a)
	n.prune()
	err = f.recv.AddPeer(n.peer()) // with the lock, so that the last word here is the last word there
	var other *nodeAddress
	if len(n.addresses) > 1 && !n.disputed {
		n.disputed = true
		other = n.addresses[0]
		if other == a {
			other = n.addresses[1]
		}
	}
	f.mu.Unlock()
	if other != nil {
		f.cfg.Logger.Warn("two records of one process name different addresses; each is tried until one answers",
			"node", id, "name", d.Name,
			"worker", record, "planes", a.d.Planes, "other_worker", other.record, "other_planes", other.d.Planes)
	}
	return id, err
}

// releaseLocked says that a worker's record no longer names its process and where it is, and whether none does. The
// lock is held.
func (f *Frontend) releaseLocked(w *workerEntry) (last bool) {
	n := w.holds
	if n == nil {
		return false
	}
	w.holds = nil
	n.workers--
	w.says.workers--
	if n.prune() && f.nodes[n.id] == n {
		// What is left may be of no use; it was said when it came. A closed Receiver needs to know nothing.
		_ = f.recv.AddPeer(n.peer())
	}
	if n.workers > 0 {
		return false
	}
	n.unused = time.Now()
	return true
}

const (
	reapEvery = time.Second
	// reapAfter is how long a process that no worker names is kept, with its link: a registry may only have lost it for
	// a moment. One that is dialled in vain then goes after reapUnlinked already: a record that comes back makes it
	// new.
	reapAfter    = time.Minute
	reapUnlinked = 2 * time.Second
)

// reap forgets processes that no worker has named for a while and that carry no response.
func (f *Frontend) reap(now time.Time) {
	var gone []NodeID
	f.mu.Lock()
	for id, n := range f.nodes {
		unused := now.Sub(n.unused)
		if n.workers > 0 || n.manual || unused < reapUnlinked {
			continue
		}
		st, ok := f.recv.State(id)
		dialled := st.Plane == "" && (f.cfg.Dial == DialEager || st.Err != nil) // there is no link
		if !ok || dialled || unused >= reapAfter && st.Streams == 0 {
			gone = append(gone, id)
			delete(f.nodes, id)
		}
	}
	f.mu.Unlock()
	for _, id := range gone {
		f.recv.RemovePeer(id)
	}
}
