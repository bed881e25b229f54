package outpath

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

const (
	batchOps   = 256
	batchArena = 256 << 10
	// batchMost is how much a batch holds for one connection before it sends: with the write that comes on top it fits
	// Buffer.
	batchMost = Buffer / 4
	poolMost  = 64 // batches that are kept
)

// Batch collects the inline writes to many connections and sends them with one system call. One goroutine at a time
// uses it:
//
//	if b.Begin(c) {
//		for more && b.Room() { write to c, by whatever is over it }
//		b.End(notify)
//	}
//	... other connections ...
//	b.Finish()
//
// From Begin to the end of Finish the batch has the connection: others that write to it or close it wait. Begin itself
// never waits.
type Batch struct {
	pool    *Batches
	ring    *ring
	arena   []byte
	used    int
	ops     []op
	current *Conn
	opened  bool // current has an op, the last
	result  func(user uint64, res int32)
	finish  func()
	bad     bool // the ring is unusable
}

type op struct {
	conn    *Conn
	p       []byte
	seen    bool // its result is there
	current bool // its connection is being written to: it stays with the batch
	notify  func()
}

// Begin takes a connection for writes; false when it cannot be had without waiting, holds bytes, or must not be
// batched.
func (b *Batch) Begin(c *Conn) bool {
	if b.bad || c.overTLS.Load() || !c.mu.TryLock() {
		return false
	}
	if !c.fdMu.TryLock() {
		c.mu.Unlock()
		return false
	}
	if !c.inline || c.closed || c.broken != nil || len(c.rest) > 0 {
		b.free(c)
		return false
	}
	b.current, b.opened = c, false
	c.into.Store(b)
	return true
}

func (b *Batch) free(c *Conn) {
	c.fdMu.Unlock()
	c.mu.Unlock()
}

// Room says whether the connection that was begun takes another write of up to Buffer less batchMost. It may send.
func (b *Batch) Room() bool {
	if b.opened && len(b.ops[len(b.ops)-1].p) >= batchMost {
		b.flush()
	}
	return len(b.current.rest) == 0 && b.current.broken == nil
}

// write is Conn.Write of the connection that was begun.
func (b *Batch) write(p []byte) (int, error) {
	c := b.current
	if c.broken != nil {
		return 0, c.broken
	}
	if len(p) > batchArena-b.used || !b.opened && len(b.ops) == batchOps {
		b.flush()
	}
	if len(c.rest) > 0 || len(p) > batchArena { // the second cannot be: Room allows less
		if err := c.hold(p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	if len(p) == 0 {
		return 0, nil
	}
	start := b.used
	b.used += copy(b.arena[start:], p)
	if b.opened {
		last := &b.ops[len(b.ops)-1]
		last.p = last.p[:len(last.p)+len(p)] // it ends where this begins
		return len(p), nil
	}
	b.ops = append(b.ops, op{conn: c, p: b.arena[start:b.used], current: true})
	b.opened = true
	return len(p), nil
}

// End ends the writes to the connection that was begun. notify is called by Finish, and must not wait, when the client
// did not take everything or the write failed: see Held and Err.
func (b *Batch) End(notify func()) {
	c := b.current
	c.into.Store(nil)
	b.current = nil
	if b.opened {
		last := &b.ops[len(b.ops)-1]
		last.current, last.notify = false, notify
		return
	}
	left := len(c.rest) > 0 || c.broken != nil
	b.free(c)
	if left {
		notify()
	}
}

// Finish sends what was written and gives the batch back to its pool.
func (b *Batch) Finish() {
	b.flush()
	b.pool.put(b)
}

// flush sends. The connection that was begun stays the batch's.
func (b *Batch) flush() {
	if len(b.ops) == 0 {
		return
	}
	for i := range b.ops {
		b.ring.send(b.ops[i].conn.fd, b.ops[i].p, uint64(i))
	}
	if err := b.ring.submit(len(b.ops), b.result); err != nil {
		b.bad = true
		b.pool.fail(err)
		for i := range b.ops {
			if !b.ops[i].seen { // sent or not: nothing may follow
				b.ops[i].conn.fail(err)
			}
		}
	}
	for i := range b.ops {
		o := b.ops[i]
		b.ops[i] = op{}
		if o.current {
			continue
		}
		left := len(o.conn.rest) > 0 || o.conn.broken != nil
		b.free(o.conn)
		if left {
			o.notify()
		}
	}
	b.ops, b.used, b.opened = b.ops[:0], 0, false
}

// sent takes the result of one send.
func (b *Batch) sent(user uint64, res int32) {
	o := &b.ops[user]
	o.seen = true
	n := int(res)
	if res < 0 {
		n = 0
		if errno := syscall.Errno(-res); errno != syscall.EAGAIN && errno != syscall.EINTR {
			o.conn.fail(&net.OpError{Op: "write", Net: "tcp", Source: o.conn.LocalAddr(), Addr: o.conn.RemoteAddr(),
				Err: errno})
			return
		}
	}
	if n < len(o.p) {
		_ = o.conn.hold(o.p[n:])
	}
}

// Batches is a pool of batches. The zero value is ready; Close it.
type Batches struct {
	mu   sync.Mutex
	free []*Batch
	err  error // there are none any more
}

// ErrBatchesClosed is why a pool that was closed has no batch.
var ErrBatchesClosed = errors.New("outpath: the batches are closed")

// Get returns a batch, or why there is none: the kernel or a sandbox does not allow it, which is found out once.
func (p *Batches) Get() (*Batch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b, nil
	}
	b := &Batch{pool: p, ops: make([]op, 0, batchOps)}
	var err error
	if b.ring, err = newRing(batchOps); err == nil {
		if b.arena, err = newArena(batchArena); err != nil {
			_ = b.ring.close()
		}
	}
	if err != nil {
		p.err = err
		return nil, err
	}
	b.result, b.finish = b.sent, b.Finish
	return b, nil
}

// Probe says why batches cannot be had or do not work here, nil if they do: it makes one and sends a byte with it. The
// kernel may lack io_uring or its send, and a sandbox may forbid it.
func (p *Batches) Probe() error {
	b, err := p.Get()
	if err != nil {
		return err
	}
	if err = b.ring.probe(b.arena); err != nil {
		p.fail(err)
	}
	p.put(b)
	return err
}

func (p *Batches) put(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || len(p.free) == poolMost {
		b.close()
		return
	}
	p.free = append(p.free, b)
}

func (p *Batches) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
}

// Close gives back all batches, those in use when they are finished. Idempotent.
func (p *Batches) Close() error {
	p.fail(ErrBatchesClosed)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.free {
		b.close()
	}
	p.free = nil
	return nil
}

func (b *Batch) close() {
	_ = b.ring.close()
	freeArena(b.arena)
}

// Done is Finish as a value, without an allocation.
func (b *Batch) Done() func() { return b.finish }
