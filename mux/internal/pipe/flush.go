package pipe

import "time"

// Flush has what waits written: by the caller where the plane can write without blocking and nobody writes, else by the
// writer, else when the gap is over.
func (p *Pipe) Flush(why Reason) {
	p.mu.Lock()
	p.flush(why)
}

// FlushLocked is Flush with the lock held; it lets it go.
func (p *Pipe) FlushLocked(why Reason) { p.flush(why) }

// flush is Flush with the lock held, which it lets go.
func (p *Pipe) flush(why Reason) {
	if !p.waiting() && !p.due() {
		p.mu.Unlock()
		return
	}
	p.flushed = true
	r := p.run
	if r == nil || r.dead || p.writing { // whoever writes looks again before it stops
		p.mu.Unlock()
		return
	}
	if !p.ready() { // what makes room flushes
		if p.fullSince == 0 {
			p.fullSince = p.cfg.Now()
		}
		p.mu.Unlock()
		return
	}
	if p.waitForGap(r) {
		p.mu.Unlock()
		return
	}
	if r.try == nil {
		p.mu.Unlock()
		r.wakeWriter()
		return
	}
	p.writing, p.inline = true, true
	p.writeInline(r, why)
}

// waitForGap arms the timer when the gap is not over and says whether it did.
//
// A write at now sets tat = min(max(tat, now) + gap, now + 5 gap); bulk alone may start at tat - 4 gap, or when a whole
// write's worth waits. So below 1/gap writes a second nothing ever waits, and nothing waits longer than one gap after
// the last write.
func (p *Pipe) waitForGap(r *run) bool {
	gap := int64(p.cfg.Gap)
	if gap == 0 || p.prompt() || p.unsent() >= bulkPerWrite {
		return false
	}
	wait := time.Duration(p.tat - 4*gap - p.cfg.Now())
	if wait <= 0 {
		return false
	}
	if !r.armed {
		r.armed = true
		r.timer.Reset(wait)
	}
	return true
}

// FlushForgotten writes what was appended and never flushed, and counts it.
func (p *Pipe) FlushForgotten() {
	p.mu.Lock()
	if p.flushed || p.writing || p.run == nil || p.run.dead || p.full() || !p.waiting() {
		p.mu.Unlock()
		return
	}
	p.cfg.Stats.Forgotten.Add(1)
	p.flush(ByTick)
}
