package refplane

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// maxSlots is how many responses a frontend may have open.
const maxSlots = 1 << 16

// Frontend is the consuming side. Methods may be called concurrently.
type Frontend struct {
	side    // listens with PerResponse
	number  uint64
	slots   []atomic.Pointer[Response]
	address string // PerResponse

	// Under mu.
	free  []uint32 // slots, the oldest first
	gens  []uint32
	peers map[string]*peer
}

// peer is a worker process, with the one connection to it (but with PerResponse).
type peer struct {
	id   string
	name string
	conn transport.Conn
	out  *out

	open           atomic.Int64  // responses
	records, bytes atomic.Uint64 // that came
}

// NewFrontend starts a frontend. With PerResponse it listens.
func NewFrontend(cfg Config) (*Frontend, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var n [8]byte
	if _, err := rand.Read(n[:]); err != nil {
		return nil, err
	}
	f := &Frontend{number: binary.BigEndian.Uint64(n[:]), slots: make([]atomic.Pointer[Response], maxSlots),
		gens: make([]uint32, maxSlots), peers: map[string]*peer{}}
	f.init(cfg)
	for i := range uint32(maxSlots) {
		f.free = append(f.free, i)
	}
	if f.cfg.Mode != PerResponse {
		return f, nil
	}
	if err := f.listen(f.ctx, f.serve); err != nil {
		f.cancel()
		return nil, err
	}
	f.address = f.listener.Endpoints()[0].String()
	return f, nil
}

// AddPeer makes a worker process known, and connects to it; it returns when the two know each other.
func (f *Frontend) AddPeer(ctx context.Context, n discovery.Node) error {
	if f.cfg.Mode == PerResponse {
		return f.addPeer(&peer{id: n.ID})
	}
	var endpoint string
	for _, p := range n.Planes {
		if p.Name == f.cfg.Plane && len(p.Endpoints) > 0 {
			endpoint = p.Endpoints[0]
		}
	}
	if endpoint == "" {
		return fmt.Errorf("refplane: %s does not listen on plane %s", n.ID, f.cfg.Plane)
	}
	id, err := transport.ParseNodeID(n.ID)
	if err != nil {
		return err
	}
	conn, err := f.cfg.Transport.Dial(ctx, transport.DialRequest{Address: endpoint, Peer: id})
	if err != nil {
		return err
	}
	p := &peer{id: n.ID, name: n.Name, conn: conn, out: newOut(false, 0, &f.stats)}
	if err := f.adopt(conn); err != nil {
		return err
	}
	known := make(chan error, 1)
	f.wg.Go(func() { f.readPeer(p, known) })                                        // ends with the connection
	f.wg.Go(func() { _ = p.out.run(f.ctx, conn, func() bool { return false }) })    // ends with ctx or the connection
	if err := p.out.put(kindHello, f.number, []byte(f.cfg.Name), nil); err != nil { // it cannot be full yet
		return err
	}
	p.out.flush()
	select {
	case err := <-known:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.Join(ctx.Err(), conn.Close())
	}
	return f.addPeer(p)
}

func (f *Frontend) addPeer(p *peer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return responseplane.ErrClosed
	}
	f.peers[p.id] = p
	return nil
}

// Connected tells whether responses can be minted at a worker process.
func (f *Frontend) Connected(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peers[id] != nil
}

// Mint opens a response at a worker process. Its terms go into the request.
func (f *Frontend) Mint(id string) (*Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.peers[id]
	switch {
	case f.closed:
		return nil, responseplane.ErrClosed
	case p == nil:
		return nil, &responseplane.Error{Kind: responseplane.EndRefused, Code: responseplane.CodeNoWorker,
			Text: "not connected to " + id}
	case len(f.free) == 0:
		return nil, &responseplane.Error{Kind: responseplane.EndRefused, Code: responseplane.CodeBusy,
			Text: fmt.Sprintf("%d responses are open", maxSlots)}
	}
	slot := f.free[0]
	f.free = f.free[1:]
	f.gens[slot]++
	r := &Response{f: f, id: uint64(slot)<<32 | uint64(f.gens[slot]), peer: p, wake: make(chan struct{}, 1)}
	r.term = terms{mode: f.cfg.Mode, id: r.id, frontend: f.number, address: f.address}.encode()
	f.slots[slot].Store(r)
	f.stats.opened.Add(1)
	f.stats.open.Add(1)
	p.open.Add(1)
	return r, nil
}

// find is the open response with this id, nil when there is none.
func (f *Frontend) find(id uint64) *Response {
	if id>>32 >= maxSlots {
		return nil
	}
	if r := f.slots[id>>32].Load(); r != nil && r.id == id {
		return r
	}
	return nil
}

// forget frees a response's slot.
func (f *Frontend) forget(r *Response) {
	slot := uint32(r.id >> 32)
	f.slots[slot].Store(nil)
	f.stats.open.Add(-1)
	f.mu.Lock()
	r.peer.open.Add(-1)
	f.free = append(f.free, slot)
	f.mu.Unlock()
}

// stop asks the worker to finish a response. With PerResponse that is the response's own connection, when there is one.
func (f *Frontend) stop(r *Response) {
	f.mu.Lock()
	p := r.peer
	f.mu.Unlock()
	if p == nil || p.out == nil {
		return
	}
	if p.out.put(kindStop, r.id, nil, nil) == nil {
		p.out.flush()
	}
}

// readPeer reads the connection to a worker process to its end.
func (f *Frontend) readPeer(p *peer, known chan<- error) {
	met := false
	err := f.read(p.conn, p, func(kind byte, id uint64) error {
		if kind != kindHello || id != f.number {
			return fmt.Errorf("refplane: an unexpected frame of kind %d", kind)
		}
		met = true
		known <- nil
		return nil
	})
	if !met {
		known <- f.lost("the worker does not answer", err)
	}
	p.out.close()
	f.drop(p.conn)
	f.mu.Lock()
	if f.peers[p.id] == p {
		delete(f.peers, p.id)
	}
	f.mu.Unlock()
	for i := range f.slots {
		if r := f.slots[i].Load(); r != nil && r.peer == p {
			r.end(f.lost("the connection has ended", err), nil)
			r.deliver()
		}
	}
}

// read hands the frames of a connection to their responses until it ends, and counts them at p. other gets those that
// are for no response.
func (f *Frontend) read(conn transport.Conn, p *peer, other func(kind byte, id uint64) error) error {
	in := newReader(conn)
	var touched []*Response
	take := func(kind byte, id uint64, body []byte) error {
		switch kind {
		case kindData, kindEnd, kindFail:
		default:
			return other(kind, id)
		}
		r := f.find(id)
		if r == nil {
			return nil // its consumer has gone
		}
		switch kind {
		case kindData:
			f.stats.recordsIn.Add(1)
			p.records.Add(1)
			if !r.add(body) {
				r.end(f.lost("the consumer is slow and there are no windows", nil), nil)
			}
		case kindEnd:
			r.end(io.EOF, append([]byte(nil), body...))
		case kindFail:
			r.end(f.failure(body), nil)
		}
		if n := len(touched); n == 0 || touched[n-1] != r {
			touched = append(touched, r)
		}
		return nil
	}
	for {
		n, err := in.read(take)
		if n > 0 {
			f.stats.reads.Add(1)
			f.stats.bytesIn.Add(uint64(n))
			p.bytes.Add(uint64(n))
		}
		for i, r := range touched {
			r.deliver()
			touched[i] = nil
		}
		touched = touched[:0]
		if err != nil {
			return err
		}
	}
}

func (f *Frontend) failure(body []byte) error {
	e := &responseplane.Error{Kind: responseplane.EndFailed, Plane: f.cfg.Plane}
	if len(body) >= 2 {
		e.Code, e.Text = responseplane.Code(binary.BigEndian.Uint16(body)), string(body[2:])
	}
	return e
}

// serve reads the connection of one response. Its first frame names the response.
func (f *Frontend) serve(conn transport.Conn) {
	defer f.drop(conn)
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var r *Response
	var writer sync.WaitGroup
	defer writer.Wait()
	o := newOut(false, 0, &f.stats)
	defer o.close()
	p := &peer{conn: conn, out: o}
	err := f.read(conn, p, func(kind byte, id uint64) error {
		if kind != kindHello || r != nil {
			return fmt.Errorf("refplane: an unexpected frame of kind %d", kind)
		}
		if r = f.find(id); r == nil {
			return io.EOF // its consumer has gone
		}
		if err := o.put(kindHello, id, nil, nil); err != nil {
			return err
		}
		o.flush()
		writer.Go(func() { _ = o.run(ctx, conn, func() bool { return false }) }) // ends with ctx
		f.mu.Lock()
		r.peer.open.Add(-1)
		r.peer = p
		p.open.Add(1)
		f.mu.Unlock()
		return nil
	})
	cancel()
	if r != nil {
		r.end(f.lost("the connection has ended", err), nil) // one that has its end already keeps it
		r.deliver()
	}
}

// Stats are the totals so far, in the shape of the plane's own.
func (f *Frontend) Stats() responseplane.Stats {
	s := f.stats.stats(f.cfg.Plane)
	if f.cfg.Mode == PerResponse {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.Lanes = nil
	for _, p := range f.peers {
		id, _ := transport.ParseNodeID(p.id) // AddPeer has parsed it
		s.Lanes = append(s.Lanes, responseplane.LaneStats{
			Peer: id, PeerName: p.name, Plane: f.cfg.Plane, Local: p.conn.Info().Local.String(),
			Remote: p.conn.Info().Remote.String(), Streams: p.open.Load(),
			BytesIn: p.bytes.Load(), RecordsIn: p.records.Load(),
		})
	}
	return s
}
