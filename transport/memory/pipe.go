package memory

import (
	"io"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// pieceMax is how much of a write becomes visible at one time on a pipe with a rate.
const pieceMax = 16 << 10

// pipe is one direction of a lane: a bounded byte queue between one writer and one reader.
type pipe struct {
	limit int // bytes that may wait

	mu   sync.Mutex
	cond sync.Cond // signalled at every change of state; few wait on it

	buf  []byte // a ring that grows up to limit
	head int    // index of the oldest byte
	size int    // bytes in the ring
	seen int    // of those, how many the reader may have

	marks   []mark // when the rest becomes visible, oldest first; empty without latency and rate
	latency time.Duration
	rate    int // bytes a second, 0 = no bound
	last    time.Time
	timer   *time.Timer

	stalled bool
	eof     bool  // the writer ended its side
	werr    error // what Write returns from now on
	rerr    error // what Read returns from now on, at once
}

// mark says that the next n bytes become visible at a time.
type mark struct {
	n  int
	at time.Time
}

func newPipe(limit int) *pipe {
	p := &pipe{limit: limit}
	p.cond.L = &p.mu
	return p
}

// write queues all of bufs; with try it queues only what fits now.
func (p *pipe) write(bufs [][]byte, try bool) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.werr != nil {
		return 0, p.werr
	}
	for _, b := range bufs {
		for len(b) > 0 {
			for p.werr == nil && p.size == p.limit {
				if try {
					return n, nil
				}
				p.cond.Wait()
			}
			if p.werr != nil {
				return n, p.werr
			}
			k := min(p.limit-p.size, len(b))
			if p.rate > 0 {
				k = min(k, pieceMax)
			}
			p.append(b[:k])
			b, n = b[k:], n+k
			p.cond.Broadcast()
		}
	}
	return n, nil
}

// append puts b, which fits, into the ring and decides when the reader may have it.
func (p *pipe) append(b []byte) {
	if need := p.size + len(b); need > len(p.buf) {
		grown := make([]byte, min(p.limit, max(need, 2*len(p.buf), 4<<10)))
		p.copyOut(grown, p.size)
		p.buf, p.head = grown, 0
	}
	tail := (p.head + p.size) % len(p.buf)
	k := copy(p.buf[tail:], b)
	copy(p.buf, b[k:])
	p.size += len(b)

	if p.latency <= 0 && p.rate <= 0 && len(p.marks) == 0 {
		p.seen = p.size
		return
	}
	now := time.Now()
	sent := now
	if p.rate > 0 {
		if p.last.After(sent) {
			sent = p.last
		}
		sent = sent.Add(time.Duration(len(b)) * time.Second / time.Duration(p.rate))
		p.last = sent
	}
	at := sent.Add(p.latency)
	if n := len(p.marks); n > 0 && p.marks[n-1].at.After(at) {
		at = p.marks[n-1].at // latency was lowered; bytes never overtake
	}
	p.marks = append(p.marks, mark{n: len(b), at: at})
	p.arm(now)
}

// arm makes visible what is due and sets the timer for the next mark.
func (p *pipe) arm(now time.Time) {
	for len(p.marks) > 0 && !p.marks[0].at.After(now) {
		p.seen += p.marks[0].n
		p.marks = p.marks[1:]
		p.cond.Broadcast()
	}
	switch {
	case len(p.marks) == 0 || p.rerr != nil:
		if p.timer != nil {
			p.timer.Stop()
		}
	case p.timer == nil:
		p.timer = time.AfterFunc(p.marks[0].at.Sub(now), p.due)
	default:
		p.timer.Reset(p.marks[0].at.Sub(now))
	}
}

func (p *pipe) due() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arm(time.Now())
}

// read takes what is visible, at least one byte.
func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.rerr != nil {
			return 0, p.rerr
		}
		if len(b) == 0 {
			return 0, nil
		}
		if !p.stalled {
			if p.seen > 0 {
				n := min(len(b), p.seen)
				p.copyOut(b, n)
				p.head = (p.head + n) % len(p.buf)
				p.size -= n
				p.seen -= n
				p.cond.Broadcast()
				return n, nil
			}
			if p.eof && p.size == 0 {
				return 0, io.EOF
			}
		}
		p.cond.Wait()
	}
}

// copyOut copies the oldest n bytes to b.
func (p *pipe) copyOut(b []byte, n int) {
	if n == 0 {
		return
	}
	k := copy(b[:n], p.buf[p.head:])
	copy(b[k:n], p.buf)
}

// finish ends the writer's side: the reader gets io.EOF after what is queued.
func (p *pipe) finish(werr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.werr == nil {
		p.werr = werr
		p.eof = true
		p.cond.Broadcast()
	}
}

// fail ends both sides at once; what is queued is dropped. An error that is there already stays.
func (p *pipe) fail(rerr, werr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rerr == nil {
		p.rerr = rerr
	} else if rerr == transport.ErrClosed {
		p.rerr = rerr // this side's own close beats what the peer did before
	}
	if p.werr == nil || werr == transport.ErrClosed {
		p.werr = werr
	}
	p.buf, p.head, p.size, p.seen, p.marks = nil, 0, 0, 0, nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cond.Broadcast()
}

func (p *pipe) setLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

func (p *pipe) setRate(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytes
	if bytes <= 0 {
		p.last = time.Time{}
	}
}

func (p *pipe) setStalled(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	p.cond.Broadcast()
}

// queued is how many bytes wait for the reader.
func (p *pipe) queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size
}
