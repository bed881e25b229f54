package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/transport"
)

// maxDials bounds the dials that are under way.
const maxDials = 32

// peer is a worker process as the registry has it.
type peer struct {
	node    discovery.Node
	workers int
}

func (p *peer) name() string {
	if p.node.Name != "" {
		return p.node.Name
	}
	return p.node.ID
}

// peers sorts the workers by process.
func peers(workers []discovery.Worker) []*peer {
	byID := map[string]*peer{}
	var out []*peer
	for _, w := range workers {
		p := byID[w.Node.ID]
		if p == nil {
			p = &peer{node: w.Node}
			byID[w.Node.ID] = p
			out = append(out, p)
		}
		p.workers++
	}
	slices.SortFunc(out, func(a, b *peer) int { return strings.Compare(a.name()+a.node.ID, b.name()+b.node.ID) })
	return out
}

// dialed is one port of one process and what a handshake with it gave.
type dialed struct {
	peer    *peer
	plane   string
	address string
	err     error
}

// checkPeers makes a handshake with every port of every process on every plane that it shares with us. It returns how
// many processes there are.
func checkPeers(ctx context.Context, r *Report, cfg Config, workers []discovery.Worker,
	transports []transport.Transport) int {
	all := peers(workers)
	if len(all) == 0 {
		r.warn("workers", fmt.Sprintf("none is registered in namespace %q, so no port could be looked at",
			cfg.Discovery.Namespace), "start workers with the same --namespace and --etcd-endpoints, then ask again")
		return 0
	}
	r.ok("workers", "%d in %d processes are registered in namespace %q", len(workers), len(all),
		cfg.Discovery.Namespace)
	var dials []*dialed
	by := map[string]transport.Transport{}
	for _, t := range transports {
		by[t.Plane()] = t
	}
	for _, p := range all {
		for _, t := range transports { // in our order
			i := slices.IndexFunc(p.node.Planes, func(n discovery.Plane) bool { return n.Name == t.Plane() })
			if i < 0 {
				continue
			}
			for _, e := range p.node.Planes[i].Endpoints {
				dials = append(dials, &dialed{peer: p, plane: t.Plane(), address: e})
			}
		}
	}
	dialAll(ctx, cfg, by, dials)
	for _, p := range all {
		judgePeer(ctx, r, cfg, p, dials)
	}
	return len(all)
}

func dialAll(ctx context.Context, cfg Config, by map[string]transport.Transport, dials []*dialed) {
	turn := make(chan struct{}, maxDials)
	var wg sync.WaitGroup
	for _, d := range dials {
		wg.Go(func() { // bounded by the timeout once it has its turn
			select {
			case turn <- struct{}{}:
				defer func() { <-turn }()
			case <-ctx.Done():
				d.err = context.Cause(ctx)
				return
			}
			if d.err = transport.CheckLoopback(d.address, d.peer.node.Network, transport.LocalNetwork()); d.err != nil {
				return
			}
			var id transport.NodeID
			if id, d.err = transport.ParseNodeID(d.peer.node.ID); d.err != nil {
				return
			}
			dctx, cancel := context.WithTimeout(ctx, cfg.timeout)
			defer cancel()
			c, err := by[d.plane].Dial(dctx, transport.DialRequest{Address: d.address, Peer: id})
			if err != nil {
				d.err = err
				return
			}
			_ = c.Close()
		})
	}
	wg.Wait()
}

// judgePeer says which of a process's ports answer.
func judgePeer(ctx context.Context, r *Report, cfg Config, p *peer, dials []*dialed) {
	reached := 0
	var mine []*dialed
	for _, d := range dials {
		if d.peer == p {
			mine = append(mine, d)
			if d.err == nil {
				reached++
			}
		}
	}
	if len(mine) == 0 {
		var theirs []string
		for _, n := range p.node.Planes {
			theirs = append(theirs, n.Name)
		}
		r.fail("worker process "+p.name(), fmt.Sprintf("listens on %s, this program uses %s: none is shared",
			strings.Join(theirs, ", "), strings.Join(cfg.Plane.Planes, ", ")),
			"name a common plane in --response-plane")
		return
	}
	for plane := range planesOf(mine) {
		good := 0
		for _, d := range mine {
			if d.plane != plane {
				continue
			}
			if d.err == nil {
				good++
				continue
			}
			text, fix := why(d)
			if reached > 0 {
				text += fmt.Sprintf(" (%d of the process's %d ports answer)", reached, len(mine))
			}
			r.fail(fmt.Sprintf("worker process %s, %s %s", p.name(), plane, d.address), text, fix)
		}
		if good > 0 {
			r.ok(fmt.Sprintf("worker process %s, %s", p.name(), plane), "%d ports answer", good)
		}
	}
	if mtu, ip, ok := pathMTU(ctx, mine[0].address); ok {
		judgeMTU(r, cfg.Plane, "MTU of the path to "+p.name(), mtu, ip)
	}
}

// planesOf yields each plane once, in order.
func planesOf(dials []*dialed) func(func(string) bool) {
	return func(yield func(string) bool) {
		last := ""
		for _, d := range dials {
			if d.plane != last {
				last = d.plane
				if !yield(last) {
					return
				}
			}
		}
	}
}

// why explains a failed handshake.
func why(d *dialed) (text, fix string) {
	kind := "TCP"
	if d.plane == transport.PlaneQUIC {
		kind = "UDP"
	}
	var identity *transport.IdentityError
	switch {
	case errors.As(d.err, &identity):
		return d.err.Error(),
			"wait until the record of a process that has gone runs out (--lease-ttl), or give each process an " +
				"address of its own"
	case errors.Is(d.err, context.DeadlineExceeded):
		return "no answer",
			fmt.Sprintf("let %s to %s through (firewall, network policy, security group); where only %s is dropped, "+
				"--response-plane tls does without", kind, d.address, kind)
	case errors.Is(d.err, syscall.ECONNREFUSED):
		return "refused: nobody listens there",
			"look whether the worker process runs; its record stays until its lease ends"
	}
	return d.err.Error(), ""
}
