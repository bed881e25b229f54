package pipe

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

const (
	readBufferStart = 16 << 10
	readBufferMax   = wire.MaxData // holds the longest record whole
)

// reader is what a connection's reader keeps between reads.
type reader struct {
	skip    int // bytes of a skipped record that are still to come
	counted int // of a skipped record: what it counts once it is through
	records int // DATA of this read
	bytes   uint64
}

// readLoop reads a connection until it ends.
func (p *Pipe) readLoop(r *run) {
	buf := make([]byte, readBufferStart)
	have := 0
	var in reader
	for {
		r.waiting.Store(true)
		n, err := r.Conn.Read(buf[have:])
		r.waiting.Store(false)
		if n > 0 {
			r.heard.Store(p.cfg.Now())
			full := have+n == len(buf)
			have += n
			in.records, in.bytes = 0, 0
			if p.warmer != nil && in.skip == 0 {
				p.warmer.Warm(buf[:have])
			}
			used, bad := p.decode(r, &in, buf[:have])
			if in.bytes > 0 {
				p.received.Add(in.bytes)
			}
			p.read(r, in.records, n)
			p.handler.BatchDone()
			if bad != nil {
				p.fail(r, bad)
				return
			}
			p.afterRead(r, in.bytes > 0)
			have = copy(buf, buf[used:have])
			if full && len(buf) < readBufferMax {
				buf = append(buf, make([]byte, len(buf))...)
			}
		}
		if err != nil {
			p.fail(r, err)
			return
		}
	}
}

// decode handles the whole records of b and returns how many bytes they were.
func (p *Pipe) decode(r *run, in *reader, b []byte) (used int, err error) {
	for {
		if in.skip > 0 {
			n := min(in.skip, len(b)-used)
			used += n
			if in.skip -= n; in.skip > 0 {
				return used, nil
			}
			in.bytes += uint64(in.counted)
			in.counted = 0
		}
		if len(b)-used < wire.HeaderSize {
			return used, nil
		}
		h := wire.ParseHeader(b[used:])
		size := wire.HeaderSize + h.Length
		if h.Kind.Skipped() {
			if in.skip = size; h.Kind.Counted() {
				in.counted = size
			}
			continue
		}
		if err := h.Check(p.cfg.FromWorker); err != nil {
			return used, err
		}
		if used+size > len(b) {
			return used, nil
		}
		body := b[used+wire.HeaderSize : used+size]
		used += size
		if h.Kind.OfConnection() {
			if err := p.uncounted(h.Kind, body); err != nil {
				return used, err
			}
			continue
		}
		if h.Kind == wire.Data {
			in.records++
		}
		if err := p.handler.Record(h, body); err != nil {
			return used, err
		}
		in.bytes += uint64(size)
	}
}

// uncounted handles the records that are of the connection. What they ask for is written after the read.
func (p *Pipe) uncounted(k wire.Kind, body []byte) error {
	var received uint64
	var value uint64
	var err error
	switch k {
	case wire.Ping, wire.Pong:
		value, received, err = wire.ParsePing(k, body)
	case wire.Ack:
		received, err = wire.ParseAck(body)
	case wire.GoAway:
		return p.wentAway(body)
	default: // HELLO again
		err = &wire.Error{Kind: k, Reason: "came twice"}
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch k {
	case wire.Ping:
		p.pong, p.pongValue = true, value
	case wire.Pong:
		sent, now := int64(value), p.cfg.Now()
		if sent > now || sent < p.ponged.Load() { // no PING of this connection
			break
		}
		p.ponged.Store(sent)
		p.rtt.Store(max(now-sent, 1))
	}
	if received > p.cursor {
		return &wire.Error{Kind: k, Reason: fmt.Sprintf("says %d bytes received, %d were sent", received, p.cursor)}
	}
	p.acknowledge(received)
	return nil
}

func (p *Pipe) wentAway(body []byte) error {
	code, text, err := wire.ParseGoAway(body)
	if err != nil {
		return err
	}
	if code != wire.AwayDraining {
		return &AwayError{code, text}
	}
	p.mu.Lock()
	p.peerDrains = true
	p.mu.Unlock()
	p.keeper.Draining()
	return nil
}

// afterRead has written what a read has made due: PONG, ACK, and what waited for room in the log.
func (p *Pipe) afterRead(r *run, counted bool) {
	p.mu.Lock()
	if counted && p.received.Load()-p.named >= r.ackAt {
		p.ack = true
	}
	if p.due() || p.flushed && p.waiting() {
		p.flush(ByUrgent)
		return
	}
	p.mu.Unlock()
}

// fail ends the connection for what the reader has met, and tells the peer where it is at fault.
func (p *Pipe) fail(r *run, err error) {
	var bad *wire.Error
	var away *AwayError
	switch {
	case errors.As(err, &bad):
		p.accuse(r, bad)
		p.die(r, &DownError{DownProtocol, err})
	case errors.As(err, &away):
		p.die(r, &DownError{DownRefused, err})
	case errors.Is(err, io.EOF):
		p.die(r, &DownError{DownPeer, fmt.Errorf("the peer ended its side: %w", err)})
	default:
		p.die(r, &DownError{DownPeer, err})
	}
}

// RTT is how long the last PING took, 0 = not known. Ponged is the node time of the PING that was answered last.
func (p *Pipe) RTT() time.Duration { return time.Duration(p.rtt.Load()) }
func (p *Pipe) Ponged() int64      { return p.ponged.Load() }

// accuse tells the peer what it did wrong, where that can be done without waiting; it is a courtesy.
func (p *Pipe) accuse(r *run, why *wire.Error) {
	p.mu.Lock()
	if r.try == nil || p.writing || r.dead {
		p.mu.Unlock()
		return
	}
	p.writing, p.inline = true, true
	p.mu.Unlock()
	_, _ = r.try.TryWrite(wire.AppendGoAway(nil, wire.AwayProtocol, why.Error()))
	_ = r.Conn.CloseWrite()
	p.mu.Lock()
	p.inline = false
	p.idle.Broadcast()
	p.mu.Unlock()
}
