package pipe

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/laneway-ai/laneway/transport"
)

var errCut = errors.New("cut")

// link is a connection for tests: two bounded queues of bytes that take and give random parts, and break after as
// many bytes of a direction as the test says. What was taken before a cut arrives, as with a network that loses the
// rest.
type link struct {
	mu   sync.Mutex
	cond sync.Cond
	rand *rand.Rand
	dir  [2]direction // what end 0 writes, and end 1
	end  [2]struct{ closed bool }
	err  error
}

type direction struct {
	buf   []byte
	limit int // bytes that may wait
	left  int // bytes until the cut, negative = none
	took  int // bytes in all
	eof   bool
}

// newLink makes a connection that dies after cut[i] bytes of end i, negative = never.
func newLink(seed uint64, limit int, cut [2]int) *link {
	l := &link{rand: rand.New(rand.NewPCG(seed, 1))}
	l.cond.L = &l.mu
	for i := range l.dir {
		l.dir[i].limit, l.dir[i].left = limit, cut[i]
		if cut[i] == 0 {
			l.err = errCut
		}
	}
	return l
}

// cut breaks the connection now.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errCut
	l.cond.Broadcast()
}

func (l *link) write(i int, bufs [][]byte, try bool) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.dir[i]
	quit := -1 // where a try gives up, though there may be room
	if try {
		quit = l.rand.IntN(2 * d.limit)
	}
	for _, b := range bufs {
		for len(b) > 0 {
			for !l.end[i].closed && l.err == nil && len(d.buf) == d.limit {
				if try {
					return n, nil
				}
				l.cond.Wait()
			}
			if l.end[i].closed {
				return n, transport.ErrClosed
			}
			if l.err != nil {
				return n, l.err
			}
			k := min(len(b), d.limit-len(d.buf))
			if try {
				k = min(k, quit-n)
			}
			if d.left >= 0 {
				k = min(k, d.left)
				if d.left -= k; d.left == 0 {
					l.err = errCut
				}
			}
			d.buf = append(d.buf, b[:k]...)
			d.took += k
			b, n = b[k:], n+k
			l.cond.Broadcast()
			if n == quit {
				return n, nil
			}
		}
	}
	return n, nil
}

// linkEnd is one end of a link.
type linkEnd struct {
	*link
	i int
}

func (e linkEnd) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := &e.dir[1-e.i]
	for {
		switch {
		case e.end[e.i].closed:
			return 0, transport.ErrClosed
		case len(d.buf) > 0:
			n := copy(p[:1+e.rand.IntN(len(p))], d.buf)
			d.buf = d.buf[:copy(d.buf, d.buf[n:])]
			e.cond.Broadcast()
			return n, nil
		case d.eof:
			return 0, io.EOF
		case e.err != nil:
			return 0, e.err
		}
		e.cond.Wait()
	}
}

func (e linkEnd) Write(p []byte) (int, error) { return e.write(e.i, [][]byte{p}, false) }
func (e linkEnd) WriteBuffers(bufs [][]byte) error {
	_, err := e.write(e.i, bufs, false)
	return err
}

func (e linkEnd) CloseWrite() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dir[e.i].eof = true
	e.cond.Broadcast()
	return nil
}

// Close drops, by chance, what is on its way.
func (e linkEnd) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.end[e.i].closed {
		return nil
	}
	e.end[e.i].closed, e.err = true, errCut
	if e.rand.IntN(2) == 0 {
		d := &e.dir[e.i]
		d.buf = d.buf[:e.rand.IntN(len(d.buf)+1)]
	}
	e.cond.Broadcast()
	return nil
}

func (e linkEnd) Info() transport.ConnInfo {
	return transport.ConnInfo{Plane: "test", Local: &net.TCPAddr{}, Remote: &net.TCPAddr{}}
}

// tryEnd is an end that can write without waiting.
type tryEnd struct{ linkEnd }

func (e tryEnd) TryWrite(p []byte) (int, error)             { return e.write(e.i, [][]byte{p}, true) }
func (e tryEnd) TryWriteBuffers(bufs [][]byte) (int, error) { return e.write(e.i, bufs, true) }

// ends are both ends of a link; try says whether they are TryWriters.
func (l *link) ends(try bool) (a, b transport.Conn) {
	if try {
		return tryEnd{linkEnd{l, 0}}, tryEnd{linkEnd{l, 1}}
	}
	return linkEnd{l, 0}, linkEnd{l, 1}
}

// passed is how many bytes end i has sent, queued how many of them were not read.
func (l *link) passed(i int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dir[i].took
}

func (l *link) queued(i int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.dir[i].buf)
}
