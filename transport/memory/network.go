package memory

import (
	"errors"
	"fmt"
	"net"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Config is the shape of a network. The zero value is usable.
type Config struct {
	// Plane is the name that the transports give themselves; "" means transport.PlaneMemory.
	Plane string
	// Buffer is how many bytes may wait in each direction of a lane; 0 means 256 KiB.
	Buffer int
	// Latency delays every byte of every lane; Rate bounds each direction of each lane, in bytes a second. 0 means
	// none.
	Latency time.Duration
	Rate    int
	// TryWrite gives lanes the method TryWrite, as plane tcp has it.
	TryWrite bool
	// Proves makes the network prove the NodeID of each transport to the other, as planes tls and quic do.
	Proves bool
	// Backlog is how many dialled lanes may wait in a listener before Dial waits; 0 means 128.
	Backlog int
}

// Validate joins all complaints about the Config.
func (c Config) Validate() error {
	var errs []error
	if c.Buffer < 0 {
		errs = append(errs, fmt.Errorf("memory: buffer of %d bytes, must be at least 1 (0 = 256 KiB)", c.Buffer))
	}
	if c.Latency < 0 {
		errs = append(errs, fmt.Errorf("memory: latency %v is negative", c.Latency))
	}
	if c.Rate < 0 {
		errs = append(errs, fmt.Errorf("memory: rate of %d bytes/s is negative", c.Rate))
	}
	if c.Backlog < 0 {
		errs = append(errs, fmt.Errorf("memory: backlog of %d lanes is negative", c.Backlog))
	}
	return errors.Join(errs...)
}

// Host is the host name of endpoints that were bound without one.
const Host = "mem.local"

// firstPort is the first port that a bind to port 0 gets.
const firstPort = 1024

// Network joins the transports that were made from it. All methods may be called concurrently.
type Network struct {
	cfg Config

	mu        sync.Mutex
	endpoints map[string]*endpoint
	dialing   map[string]*rule // by address, for refused and silent ones
	conns     map[*Conn]struct{}
	nextPort  int
	nextDial  uint64
	latency   time.Duration
	rate      int
	stalled   bool
}

// rule is what happens to dials to an address: refused with err, or (err nil) never answered.
type rule struct{ err error }

// NewNetwork makes a network. It panics on a Config that does not pass Validate; a network has no other way to fail.
func NewNetwork(cfg Config) *Network {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	if cfg.Plane == "" {
		cfg.Plane = transport.PlaneMemory
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = 256 << 10
	}
	if cfg.Backlog == 0 {
		cfg.Backlog = 128
	}
	return &Network{
		cfg:       cfg,
		endpoints: make(map[string]*endpoint),
		dialing:   make(map[string]*rule),
		conns:     make(map[*Conn]struct{}),
		nextPort:  firstPort,
		latency:   cfg.Latency,
		rate:      cfg.Rate,
	}
}

// Transport makes a transport for the node id. Each call makes a new one; they share the network only.
func (n *Network) Transport(id transport.NodeID) *Transport { return newTransport(n, id) }

// Refuse makes later dials to address fail with err; nil means ErrRefused.
func (n *Network) Refuse(address string, err error) {
	if err == nil {
		err = ErrRefused
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialing[address] = &rule{err: err}
}

// Silence makes later dials to address wait until their context ends, as a host that drops packets.
func (n *Network) Silence(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dialing[address] = &rule{}
}

// Allow ends a Refuse or a Silence. Dials that wait go on waiting.
func (n *Network) Allow(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dialing, address)
}

// Conns are the dialling ends of the lanes that are open at this end, in the order of their dials. Conn.Peer gives the
// accepting end.
func (n *Network) Conns() []*Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*Conn
	for c := range n.conns {
		if c.info.Lane >= 0 {
			out = append(out, c)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}

// SetLatency sets the latency of all lanes, open and to come, in both directions.
func (n *Network) SetLatency(d time.Duration) {
	n.each(func() { n.latency = d }, func(c *Conn) { c.SetLatency(d) })
}

// SetRate bounds each direction of all lanes, open and to come, in bytes a second; 0 means no bound.
func (n *Network) SetRate(bytes int) {
	n.each(func() { n.rate = bytes }, func(c *Conn) { c.SetRate(bytes) })
}

// Stall stops delivery on all lanes, open and to come, without an error.
func (n *Network) Stall() { n.each(func() { n.stalled = true }, (*Conn).Stall) }

// Release ends a Stall on all lanes.
func (n *Network) Release() { n.each(func() { n.stalled = false }, (*Conn).Release) }

// Cut cuts all lanes that are open now; see Conn.Cut.
func (n *Network) Cut(err error) { n.each(func() {}, func(c *Conn) { c.Cut(err) }) }

// each applies set to the network and then do to all ends of open lanes.
func (n *Network) each(set func(), do func(*Conn)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	set()
	for c := range n.conns {
		do(c)
	}
}

// connect makes the two ends of a lane, registers them and hands one to the listener, in whose backlog the caller holds
// a place. It fails if either transport is closed.
func (n *Network) connect(from *Transport, req transport.DialRequest, e *endpoint) (*Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if from.closed || e.closed {
		return nil, transport.ErrClosed
	}
	a, b := newPipe(n.cfg.Buffer), newPipe(n.cfg.Buffer)
	for _, p := range []*pipe{a, b} {
		p.latency, p.rate, p.stalled = n.latency, n.rate, n.stalled
	}
	local := Addr(net.JoinHostPort("dialer."+Host, strconv.Itoa(n.port(""))))
	n.nextDial++
	dialled := &Conn{
		owner: from, in: a, out: b, id: n.nextDial,
		info: transport.ConnInfo{Plane: n.cfg.Plane, Local: local, Remote: e.addr, Lane: req.Lane},
	}
	accepted := &Conn{
		owner: e.ln.t, in: b, out: a, id: n.nextDial,
		info: transport.ConnInfo{Plane: n.cfg.Plane, Local: e.addr, Remote: local, Lane: -1},
	}
	if n.cfg.Proves {
		dialled.info.Peer, dialled.info.Proven = e.ln.t.id, true
		accepted.info.Peer, accepted.info.Proven = from.id, true
	}
	dialled.peer, accepted.peer = accepted, dialled
	n.conns[dialled] = struct{}{}
	n.conns[accepted] = struct{}{}
	e.ln.backlog <- accepted // never waits: there is room for everyone who holds a place
	return dialled, nil
}

// port gives a port that is free on host; n.mu is held.
func (n *Network) port(host string) int {
	for {
		p := n.nextPort
		n.nextPort++
		if n.nextPort > 65535 {
			n.nextPort = firstPort
		}
		if _, taken := n.endpoints[net.JoinHostPort(host, strconv.Itoa(p))]; !taken {
			return p
		}
	}
}
