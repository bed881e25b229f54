package pipe

import "github.com/laneway-ai/laneway/mux/internal/wire"

const (
	// bulkPerWrite is how much bulk one write takes: what a PING or a first record waits for at most.
	bulkPerWrite = 64 << 10
	// urgentPerWrite bounds the urgent part of a write; the rest stays first.
	urgentPerWrite = 256 << 10
)

// batch is what one write carries: uncounted records, then pieces of the log. Who owns writing owns it.
type batch struct {
	control []byte
	pieces  [][]byte // the first is control's
	held    []*chunk
	size    int
}

// hold adds a segment to the batch; it stays until release, acknowledged or not.
func (p *Pipe) hold(s segment) {
	s.c.refs++
	p.batch.held = append(p.batch.held, s.c)
	p.batch.pieces = append(p.batch.pieces, s.bytes())
	p.batch.size += s.to - s.from
}

// release lets the chunks of a batch go. The lock is held.
func (p *Pipe) release() {
	for i, c := range p.batch.held {
		p.drop(c)
		p.batch.held[i] = nil
	}
	clear(p.batch.pieces)
	p.batch.held, p.batch.pieces, p.batch.size = p.batch.held[:0], p.batch.pieces[:0], 0
}

// written takes the first n bytes off the batch.
func (b *batch) written(n int) {
	b.size -= n
	for i := range b.pieces {
		m := min(n, len(b.pieces[i]))
		b.pieces[i] = b.pieces[i][m:]
		if n -= m; n == 0 {
			return
		}
	}
}

func (p *Pipe) unsent() int { return p.places[Bulk].bytes + p.places[Urgent].bytes }

// waiting says whether counted records wait, or somebody who will append some.
func (p *Pipe) waiting() bool { return p.unsent() > 0 || p.owed[Bulk].n+p.owed[Urgent].n > 0 }

// ready says whether a gather would have something to write.
func (p *Pipe) ready() bool {
	return p.due() || p.cursor < p.sealed || p.waiting() && !p.full()
}

// prompt says whether what waits never waits for the gap.
func (p *Pipe) prompt() bool {
	return p.places[Urgent].bytes > 0 || p.owed[Urgent].n > 0 || p.hurry || p.cursor < p.sealed || p.dueNow()
}

// gather makes the next batch: what of the log this connection was not given, else owed state, urgent and bulk, which
// are sealed; and uncounted records before them. The caller owns writing; the lock is held, and let go while owners
// emit.
func (p *Pipe) gather(why Reason) {
	now := p.cfg.Now()
	if gap := int64(p.cfg.Gap); gap > 0 {
		p.tat = min(max(p.tat, now)+gap, now+5*gap)
	}
	switch {
	case p.prompt():
		why = ByUrgent
	case p.unsent() >= bulkPerWrite:
		why = ByFull
	}
	p.flushed, p.hurry = false, false
	p.batch.pieces = append(p.batch.pieces, nil)
	records, before := 0, p.sealed
	switch {
	case p.cursor < p.sealed:
		p.replay(bulkPerWrite)
		p.cfg.Stats.Resent.Add(uint64(p.batch.size))
		p.flushed = true
	case p.full():
	default:
		p.emit()
		if p.skipDue { // after emit, which lets the lock go: no record goes behind the END that a Skip came with
			p.SkipNow()
		}
		urgent, bulk := &p.places[Urgent], &p.places[Bulk]
		records = p.take(urgent, min(urgentPerWrite, p.room()))
		if urgent.bytes == 0 {
			records += p.take(bulk, min(bulkPerWrite, p.room()))
		}
		if bulk.bytes == 0 {
			p.epoch++
		}
		p.cfg.Budget.addLog(int(p.sealed - before))
	}
	p.flushed = p.flushed || p.waiting()
	if p.fullSince == 0 && p.waiting() && p.full() {
		p.fullSince = now
	}
	p.batch.control = p.appendControl(p.batch.control[:0], now, p.sealed > before)
	if n := len(p.batch.control); n > 0 {
		p.batch.pieces[0] = p.batch.control
		p.batch.size += n
	}
	if p.batch.size > 0 {
		p.wrote(why, records, p.batch.size)
	}
}

// report tells the layer above what the batch has sealed. No lock is held.
func (p *Pipe) report() {
	for _, s := range p.ended {
		p.handler.Sealed(s)
	}
	p.ended = p.ended[:0]
}

// pieces is what is to be written, nothing if the batch is empty.
func (p *Pipe) pieces() [][]byte {
	b := p.batch.pieces
	for len(b) > 0 && len(b[0]) == 0 {
		b = b[1:]
	}
	return b
}

// control is the uncounted records that are due: state, never a queue. The lock guards it but where said.
type control struct {
	ping, pong bool
	pongValue  uint64
	ack        bool   // received has moved by so much that it must be named
	ackNow     bool   // without waiting for the gap
	away       []byte // GOAWAY, encoded
	drains     string // not "": GOAWAY(draining) goes first on every connection, and why
	named      uint64 // the last received that the peer was told
	peerDrains bool
}

func (c *control) due() bool    { return c.ping || c.pong || c.ack || c.away != nil }
func (c *control) dueNow() bool { return c.ping || c.pong || c.ackNow || c.away != nil }

// appendControl encodes what is due. with says that counted records go along.
func (p *Pipe) appendControl(b []byte, now int64, with bool) []byte {
	if !p.due() {
		return b
	}
	received := p.received.Load()
	if p.away != nil {
		b, p.away = append(b, p.away...), nil
	}
	alone := len(b) == 0
	if p.pong {
		b = wire.AppendPing(b, wire.Pong, p.pongValue, received)
	}
	if p.ping {
		b = wire.AppendPing(b, wire.Ping, uint64(now), received)
	}
	if p.ack && !p.ping && !p.pong {
		b = wire.AppendAck(b, received)
		if with || !alone {
			p.cfg.Stats.AcksAlong.Add(1)
		} else {
			p.cfg.Stats.AcksAlone.Add(1)
		}
	}
	if p.ping || p.pong || p.ack {
		p.named = received
	}
	p.ping, p.pong, p.ack, p.ackNow = false, false, false, false
	return b
}
