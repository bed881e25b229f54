package loadgen

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/program/uring"
)

// ringConfig and the buffers are those of one loop: 2 MiB, whatever the number of connections, because a buffer is in
// use only from its completion until the loop has looked at it. Tests change them to what older kernels and busier
// loops have.
var (
	ringConfig  = uring.Config{Entries: 512, Completions: 4096, Owned: true}
	ringBuffers = 512
)

const (
	ringBufferSize = 4 << 10
	ringGroup      = 0
)

// probeRing says why the io_uring client cannot be had or does not work here, nil if it does.
func probeRing() error { return uring.ProbeReceive(ringConfig) }

// ring is the poller that gets the bytes themselves: each connection has one receive that stays armed, and what comes
// is in a buffer when the loop hears of it.
type ring struct {
	l    *loop
	r    *uring.Ring
	bufs *uring.Buffers
	take func(*uring.CQE)

	queue   []uring.SQE // for which the ring had no room
	closing []int       // file descriptors that an operation which the kernel has not taken yet may name
	pending int         // operations that will have another completion
	more    bool        // the kernel may have more completions ready
	now     int64       // when the completions that are looked at were seen
}

func newRing(l *loop) (*ring, error) {
	r, err := uring.New(ringConfig)
	if err != nil {
		return nil, fmt.Errorf("the io_uring client does not work here, epoll may: %w", err)
	}
	bufs, err := r.Buffers(ringGroup, ringBuffers, ringBufferSize)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the io_uring client does not work here, epoll may: %w", err), r.Close())
	}
	p := &ring{l: l, r: r, bufs: bufs}
	p.take = p.took
	return p, nil
}

// begin makes this thread the ring's, until end.
func (p *ring) begin() error {
	runtime.LockOSThread()
	if err := p.r.Enable(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	p.push(uring.Poll(p.l.stopFD, unix.POLLIN, user(opStop, nil)))
	return nil
}

// Kinds of operation, in the top byte of the user data. Below it are the slot's number, 24 bits, and the generation of
// its connection.
const (
	opReceive = iota
	opWritable
	opCancel
	opStop
)

func user(op uint64, s *slot) uint64 {
	if s == nil {
		return op << 56
	}
	return op<<56 | uint64(s.number)<<32 | uint64(uint32(s.gen))
}

// push asks for an operation, which goes to the kernel with the next Enter.
func (p *ring) push(s uring.SQE) {
	p.pending++
	if len(p.queue) > 0 || !p.r.Add(s) {
		p.queue = append(p.queue, s) // no more than a few for each slot
	}
}

// sent says that the kernel has taken everything that was pushed.
func (p *ring) sent() bool { return len(p.queue) == 0 && p.r.Unsent() == 0 }

// submit gives the kernel what was pushed, but for the last ringful, which Enter takes along; with all that too.
func (p *ring) submit(all bool) error {
	for {
		n := 0
		for n < len(p.queue) && p.r.Add(p.queue[n]) {
			n++
		}
		p.queue = append(p.queue[:0], p.queue[n:]...)
		before := p.r.Unsent()
		if before == 0 || len(p.queue) == 0 && !all {
			return nil
		}
		if err := p.r.Submit(); err != nil {
			return err
		}
		if p.r.Unsent() == before {
			return nil // the kernel is short of memory: again at the next turn
		}
	}
}

// hangUps closes what was dropped, once no operation on its way to the kernel can name it: another connection may get
// the same number.
func (p *ring) hangUps() {
	if !p.sent() {
		return
	}
	for _, fd := range p.closing {
		_ = unix.Close(fd)
	}
	p.closing = p.closing[:0]
}

func (p *ring) dial(s *slot) error {
	p.push(uring.Poll(s.fd, unix.POLLOUT, user(opWritable, s)))
	s.writing = true
	return nil
}

func (p *ring) open(s *slot) error {
	p.push(uring.Recv(s.fd, ringGroup, user(opReceive, s)))
	s.armed = true
	return nil
}

// want has nothing to take back: a poll ends when it has spoken.
func (p *ring) want(s *slot, write bool) error {
	if write {
		p.push(uring.Poll(s.fd, unix.POLLOUT, user(opWritable, s)))
	}
	return nil
}

// drop closes the connection. The kernel does so when what is asked for on it has been cancelled.
func (p *ring) drop(s *slot) {
	clean := p.sent()
	if s.armed {
		p.push(uring.Cancel(user(opReceive, s), user(opCancel, s)))
		s.armed = false
	}
	if s.writing {
		p.push(uring.Cancel(user(opWritable, s), user(opCancel, s)))
	}
	if clean {
		_ = unix.Close(s.fd)
	} else {
		p.closing = append(p.closing, s.fd)
	}
}

func (p *ring) pause() bool {
	if p.more {
		return true
	}
	if !p.sent() && p.submit(true) == nil { // an error comes back in wait
		p.hangUps()
	}
	return false
}

func (p *ring) wait(d time.Duration) (int, error) {
	if err := p.submit(false); err != nil {
		return 0, err
	}
	least := 1
	if p.more || d <= 0 {
		least = 0
	}
	if err := p.r.Enter(least, d); err != nil {
		return 0, err
	}
	p.hangUps()
	return p.r.Ready(), nil
}

func (p *ring) serve() {
	n := p.r.Ready()
	p.now = p.l.e.now() // all n were there by now, however long it takes to look at them
	p.r.Take(n, p.take)
	p.bufs.Publish()
	p.more = p.r.Deferred() && n >= uring.DeferredBatch
}

// took takes one completion.
func (p *ring) took(c *uring.CQE) {
	if !c.More() {
		p.pending--
	}
	id, filled := c.Buffer()
	switch c.User >> 56 {
	case opStop:
		if c.Res > 0 {
			p.l.cancel()
		}
	case opReceive:
		if s := p.slot(c); s != nil {
			var b []byte
			if filled && c.Res > 0 {
				b = p.bufs.Bytes(id, int(c.Res))
			}
			p.received(s, c, b)
		}
	case opWritable:
		if s := p.slot(c); s != nil {
			p.writable(s, c.Res)
		}
	}
	if filled {
		p.bufs.Put(id)
	}
}

// slot is whose completion it is, nil when the connection is gone.
func (p *ring) slot(c *uring.CQE) *slot {
	s := p.l.slots[c.User>>32&(1<<24-1)]
	if s.fd < 0 || uint32(s.gen) != uint32(c.User) {
		return nil
	}
	return s
}

func (p *ring) received(s *slot, c *uring.CQE, b []byte) {
	l, gen := p.l, s.gen
	s.armed = c.More()
	var err error
	if c.Res < 0 {
		err = unix.Errno(-c.Res)
	}
	switch {
	case err == unix.ENOBUFS || err == unix.EINTR || err == unix.EAGAIN: // the bytes wait in the socket
	case s.state != slotOpen: // the server closed a connection that nobody used, or sent what nobody asked for
		l.hangUp(s)
	case len(b) == 0:
		l.broken(s, err)
	default:
		// Bytes that follow a response in the same moment may be older than the request that has taken its place.
		l.took(s, b, max(p.now, s.x.row.Sent))
	}
	if s.fd >= 0 && s.gen == gen && !s.armed {
		_ = p.open(s) // it only asks
	}
}

func (p *ring) writable(s *slot, res int32) {
	l := p.l
	s.writing = false
	switch {
	case s.state == slotConnecting:
		l.connected(s) // the socket itself says whether it is
	case res < 0:
		l.broken(s, unix.Errno(-res))
	case len(s.out) > 0 && l.flush(s) && len(s.out) > 0:
		l.want(s, true)
	}
}

// drainTimeout bounds how long the end of a loop waits for what it has cancelled, which takes a system call or two.
const drainTimeout = 2 * time.Second

// end waits until the kernel is done with all that was asked for: until then it holds the connections, and could write
// to the buffers.
func (p *ring) end() {
	defer runtime.UnlockOSThread()
	p.push(uring.Cancel(user(opStop, nil), user(opCancel, nil)))
	for deadline := time.Now().Add(drainTimeout); p.pending > 0; {
		left := time.Until(deadline)
		if left <= 0 {
			return
		}
		if _, err := p.wait(left); err != nil {
			return
		}
		p.serve()
	}
	p.hangUps()
}

// close gives the ring back, and its buffers unless the kernel may still write to them.
func (p *ring) close() {
	_ = p.r.Close()
	for _, fd := range p.closing { // of a ring that failed
		_ = unix.Close(fd)
	}
	p.closing = nil
	if p.pending > 0 {
		p.l.e.cfg.Log.Warn("io_uring: operations did not end, so their buffers are not freed", "operations", p.pending)
		return
	}
	_ = p.bufs.Free()
}
