package pipe

// writeInline gathers and writes once, without blocking. The caller has taken writing; the lock is held and let go.
func (p *Pipe) writeInline(r *run, why Reason) {
	p.gather(why)
	p.mu.Unlock()
	p.report()
	n, err := 0, error(nil)
	if pieces := p.pieces(); pieces != nil {
		n, err = r.try.TryWriteBuffers(pieces)
	}
	p.mu.Lock()
	p.inline = false
	if r.dead {
		p.idle.Broadcast() // Stop may wait for it, and cleans up
		p.mu.Unlock()
		return
	}
	wake := false
	if err == nil && n < p.batch.size {
		p.batch.written(n)
		p.rest, wake = true, true
	} else {
		p.release()
		p.writing = false
		wake = err == nil && p.flushed && p.ready() && !p.waitForGap(r)
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		p.die(r, &DownError{DownPeer, err})
	case wake:
		r.wakeWriter()
	}
}

// writeLoop is the connection's writer.
func (p *Pipe) writeLoop(r *run) {
	defer r.timer.Stop()
	for {
		why, timed := ByFlush, false
		select {
		case <-r.wake:
		case <-r.timer.C:
			why, timed = ByGap, true
		case <-r.done:
			return
		}
		p.mu.Lock()
		if timed {
			r.armed = false
		}
		if !p.rest {
			if p.writing || r.dead || !p.flushed || !p.ready() || p.waitForGap(r) {
				p.mu.Unlock()
				continue
			}
			p.writing = true
			p.gather(why)
		}
		p.rest = false
		if !p.writeAll(r, why) {
			return
		}
	}
}

// writeAll writes the batch, and then what waits, until nothing is left that may go now. The lock is held and let go.
// False: the connection has died.
func (p *Pipe) writeAll(r *run, why Reason) bool {
	for {
		p.mu.Unlock()
		p.report()
		var err error
		if pieces := p.pieces(); pieces != nil {
			err = r.Conn.WriteBuffers(pieces)
		}
		p.mu.Lock()
		if err != nil {
			p.mu.Unlock()
			p.die(r, &DownError{DownPeer, err})
			return false
		}
		p.release()
		if r.dead || !p.flushed || !p.ready() || p.waitForGap(r) {
			p.writing = false
			p.mu.Unlock()
			return true
		}
		p.gather(why)
	}
}
