package mux

import "github.com/laneway-ai/laneway/internal/wire"

// gather takes what waits into the batch: the lane's own control, urgent, then up to 64 KiB of bulk. The caller owns
// writing.
func (l *lane) gather(reason writeReason) []byte {
	b := l.batch[:0]
	l.mu.Lock()
	now := l.node.now()
	if gap := int64(l.node.cfg.GapMax); gap > 0 {
		l.tat = min(max(l.tat, now)+gap, now+5*gap)
	}
	switch {
	case l.prompt():
		reason = writeUrgent
	case l.queued >= bulkPerWrite:
		reason = writeFull
	}
	l.flushed, l.hurry, l.lazy = false, false, 0
	if l.pong {
		b, l.pong = wire.AppendPing(b, wire.Pong, l.pongVal), false
	}
	if l.ping {
		b, l.ping = wire.AppendPing(b, wire.Ping, uint64(now)), false
	}
	if l.away != nil {
		b, l.away = append(b, l.away...), nil
	}
	b, records, taken := l.visitList(&l.urgent, b, urgentPerWrite)
	b, r, t := l.visitList(&l.bulk, b, bulkPerWrite)
	records, taken = records+r, taken+t
	l.queued -= taken
	l.mu.Unlock()
	l.batch = b
	if len(b) > 0 {
		l.node.stats.wrote(reason, records, len(b))
		l.recordsOut.Add(uint64(records))
		l.bytesOut.Add(uint64(len(b)))
		l.plane.recordsOut.Add(uint64(records))
		l.plane.bytesOut.Add(uint64(len(b)))
	}
	return b
}

// visitList takes a list to the batch, up to limit bytes: the streams that stood in it at the start, each as often as it
// has more. What joins meanwhile belongs to a pass that is not flushed yet. What the limit leaves behind goes out with
// the next write, without another Flush. The lane's lock is held, and let go during each visit.
func (l *lane) visitList(q *list, b []byte, limit int) (out []byte, records, taken int) {
	start := len(b)
	left := false
	for visits := q.n; visits > 0 && q.first != nil; visits-- {
		if len(b)-start >= limit {
			l.flushed = true
			break
		}
		e := q.first
		q.remove(e)
		e.on = onNone
		l.mu.Unlock()
		var n, bytes int
		var more bool
		b, n, bytes, more = e.owner.emit(l, b, limit-(len(b)-start))
		l.mu.Lock()
		if more && bytes == 0 {
			l.flushed = true // no room for its next record: it is first in the next write
			break
		}
		records, taken = records+n, taken+bytes
		if more && q == &l.bulk {
			visits++
			left = true
		}
	}
	if left && q.first != nil {
		l.flushed = true // a stream that joined meanwhile may have had the visit of the one that has more
	}
	return b, records, taken
}

// writeInline gathers and writes once, without blocking. The caller has taken writing.
func (l *lane) writeInline(reason writeReason) {
	b := l.gather(reason)
	n, err := 0, error(nil)
	if len(b) > 0 {
		n, err = l.try.TryWrite(b)
	}
	l.mu.Lock()
	if err == nil && n < len(b) {
		l.rest = b[n:]
		l.mu.Unlock()
		l.wakeWriter()
		return
	}
	l.writing = false
	again := err == nil && l.dead == nil && l.flushed && !l.empty() && !l.waitForGap()
	l.mu.Unlock()
	if err != nil {
		l.die(deathPeer, err)
	} else if again {
		l.wakeWriter()
	}
}

// writeLoop is the lane's writer.
func (l *lane) writeLoop() {
	defer l.timer.Stop()
	for {
		reason := writeFlush
		timed := false
		select {
		case <-l.wake:
		case <-l.timer.C:
			reason, timed = writeGap, true
		case <-l.done:
			return
		}
		l.mu.Lock()
		if timed {
			l.armed = false
		}
		rest := l.rest
		l.rest = nil
		if rest == nil {
			if l.writing || l.dead != nil || !l.flushed || l.empty() || l.waitForGap() {
				l.mu.Unlock()
				continue
			}
			l.writing = true
		}
		l.mu.Unlock()
		if err := l.writeAll(rest, reason); err != nil {
			l.die(deathPeer, err)
			return
		}
	}
}

// writeAll writes rest, then what waits, until nothing is left that may go now. It gives writing back unless it fails.
func (l *lane) writeAll(rest []byte, reason writeReason) error {
	for {
		if len(rest) == 0 {
			rest = l.gather(reason)
		}
		if len(rest) > 0 {
			if _, err := l.conn.Write(rest); err != nil {
				return err
			}
		}
		rest = nil
		l.mu.Lock()
		if l.dead != nil || !l.flushed || l.empty() || l.waitForGap() {
			l.writing = false
			l.mu.Unlock()
			return nil
		}
		l.mu.Unlock()
	}
}
