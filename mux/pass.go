package mux

// Pass is a run of sink calls, one after the other on one goroutine: all those of one read of a lane, or all streams that lose
// their link or their time at one moment. It is how the sinks of different streams do something together, such as
// sending what each of them wrote with one system call.
//
// A Pass belongs to the sink that it was handed to during that call, and to what Defer was given. It must not be kept.
type Pass struct {
	value any
	after []func()
	views [][]byte // of the call that is under way
}

// Value is what Defer was last given in this pass, nil before.
func (p *Pass) Value() any { return p.value }

// Defer sets Value and has after called once when all sinks of the pass have been, on the same goroutine, with no lock of this
// package held. Functions of several calls are called in their order. Like a sink, after must not wait; a read of the lane
// waits for it. Neither argument costs an allocation here; a method value is best made once.
func (p *Pass) Defer(value any, after func()) {
	p.value = value
	p.after = append(p.after, after)
}

// end ends a pass whose last sink call was over at start, and returns the node's time. What is called counts as sink time.
func (p *Pass) end(n *node, start int64) (now int64) {
	if len(p.after) == 0 {
		return start
	}
	for i := 0; i < len(p.after); i++ { // it may grow
		after := p.after[i]
		p.after[i] = nil
		after()
	}
	p.after, p.value = p.after[:0], nil
	if now = n.now(); now-start > int64(slowSink) {
		n.stats.sinkSlow.Add(1)
	}
	return now
}

// deliverEnds tells the consumers of streams that ended outside a read of their lane. No lock is held.
func (k *inLink) deliverEnds(ended []*InStream) {
	if len(ended) == 0 {
		return
	}
	pass, now := new(Pass), k.now()
	for _, s := range ended {
		now = s.deliver(pass, now)
	}
	pass.end(k.node, now)
}
