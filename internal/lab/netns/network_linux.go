package netns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// runDir is where ip netns keeps the names.
const runDir = "/run/netns"

// closeLimit bounds the removal of what was made; it is not the caller's context that ends it.
const closeLimit = 30 * time.Second

// Network is a set of namespaces. Its methods may be called concurrently.
type Network struct {
	prefix string // of all its names
	hub    *Node
	nodes  map[string]*Node

	mu    sync.Mutex
	made  []string // names of namespaces that are there, in order
	files []*os.File
}

// Node is one namespace.
type Node struct {
	// Name is as in Config; Namespace is what ip netns calls it.
	Name, Namespace string
	// Addr4 and Addr6 are its addresses; Addr6 is the zero Addr without Config.IPv6.
	Addr4, Addr6 netip.Addr
	// Interface is the name of its interface inside, Port the name of the other end, in the hub's namespace.
	Interface, Port string

	file *os.File
}

// count tells networks of one process apart.
var count atomic.Int64

// Check tells whether this process can make namespaces. The error is a *MissingError.
func Check() error {
	if _, err := ipCommand(); err != nil {
		return err
	}
	return mayUnshare()
}

// Make removes what dead makers have left behind, then makes the namespaces. When it fails or ctx ends, it removes what
// it has made. The Network is for Close.
func Make(ctx context.Context, cfg Config) (_ *Network, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := Check(); err != nil {
		return nil, err
	}
	if _, err := RemoveStale(ctx); err != nil {
		return nil, err
	}
	own, err := owner(os.Getpid())
	if err != nil {
		return nil, err
	}
	n := &Network{prefix: fmt.Sprintf("%s%s-%d-", namePrefix, own, count.Add(1)), nodes: make(map[string]*Node,
		len(cfg.Nodes))}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.hub, err = n.add(ctx, hubName); err != nil {
		return nil, err
	}
	n.hub.Interface = "br0"
	n.hub.number(cfg, 1)
	// Without snooping, and with spanning tree off as it is by default, a port forwards from the first packet on.
	hub := []string{"link set lo up", "link add br0 type bridge mcast_snooping 0"}
	hub = append(hub, n.hub.bringUp()...)
	for i, name := range cfg.Nodes {
		d, err := n.add(ctx, name)
		if err != nil {
			return nil, err
		}
		d.Interface, d.Port = "eth0", fmt.Sprintf("v%d", i)
		d.number(cfg, i+2)
		n.nodes[name] = d
		hub = append(hub, fmt.Sprintf("link add %s mtu %d type veth peer name %s mtu %d netns %s", d.Port, cfg.MTU,
			d.Interface, cfg.MTU, d.Namespace),
			fmt.Sprintf("link set %s master br0 up", d.Port))
	}
	if err := n.hub.IP(ctx, hub...); err != nil {
		return nil, err
	}
	for _, name := range cfg.Nodes {
		d := n.nodes[name]
		if err := d.IP(ctx, append([]string{"link set lo up"}, d.bringUp()...)...); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// add makes one namespace and opens it.
func (n *Network) add(ctx context.Context, name string) (*Node, error) {
	d := &Node{Name: name, Namespace: n.prefix + name}
	n.mu.Lock()
	n.made = append(n.made, d.Namespace) // before it is there: a command that is killed may have made it
	n.mu.Unlock()
	if err := ip(ctx, nil, "netns", "add", d.Namespace); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(runDir, d.Namespace))
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	n.mu.Lock()
	n.files = append(n.files, f)
	n.mu.Unlock()
	d.file = f
	return d, nil
}

func (d *Node) number(cfg Config, i int) {
	d.Addr4 = address(prefix4, i)
	if cfg.IPv6 {
		d.Addr6 = address(prefix6, i)
	}
}

// bringUp are the commands that give the interface its addresses. Without duplicate address detection they work at
// once.
func (d *Node) bringUp() []string {
	out := []string{fmt.Sprintf("addr add %s/%d dev %s", d.Addr4, prefix4.Bits(), d.Interface)}
	if d.Addr6.IsValid() {
		out = append(out, fmt.Sprintf("addr add %s/%d dev %s nodad", d.Addr6, prefix6.Bits(), d.Interface))
	}
	return append(out, fmt.Sprintf("link set %s up", d.Interface))
}

// Hub is the namespace of the bridge.
func (n *Network) Hub() *Node { return n.hub }

// Node is the namespace of that name in Config.Nodes; nil when there is none.
func (n *Network) Node(name string) *Node { return n.nodes[name] }

// Close removes the namespaces with all that is in them. Processes must have ended: one that has not keeps its
// namespace without a name, and is named in the error. Idempotent; what could not be removed is tried again by the next
// call.
func (n *Network) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	n.mu.Lock()
	made, files := n.made, n.files
	n.made, n.files = nil, nil
	n.mu.Unlock()
	var errs []error
	for _, f := range files {
		f.Close()
	}
	var left []string
	for _, name := range made {
		if err := remove(ctx, name); err != nil {
			errs = append(errs, err)
			left = append(left, name)
		}
	}
	n.mu.Lock()
	n.made = append(n.made, left...)
	n.mu.Unlock()
	return errors.Join(errs...)
}

// remove deletes a namespace's name. It is no error when it has none.
func remove(ctx context.Context, name string) error {
	if _, err := os.Stat(filepath.Join(runDir, name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	pids, err := inside(name)
	if err != nil {
		return err
	}
	if err := ip(ctx, nil, "netns", "del", name); err != nil {
		if _, gone := os.Stat(filepath.Join(runDir, name)); errors.Is(gone, os.ErrNotExist) {
			return nil // another maker was quicker to find it stale
		}
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("netns: processes still run in %s, which lives on without its name until they end: %s", name,
			strings.Join(pids, ", "))
	}
	return nil
}
