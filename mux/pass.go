package mux

import "github.com/laneway-ai/laneway/mux/internal/pipe"

// Pass is a run of sink calls, one after the other on one goroutine: all those of one read of a lane, or all streams
// that lose their link or their time at one moment. It is how the sinks of different streams do something together,
// such as sending what each of them wrote with one system call.
//
// A Pass belongs to the sink that it was handed to during that call, and to what Defer was given. It must not be kept.
type Pass struct {
	value any
	after []func()
	views [][]byte // of the call that is under way
	calls int      // so far
	since int64    // node time of the last look at the clock
	// reading says that it is of a lane's reader, at the end of a read: its buffer holds what the streams point to.
	reading bool
	owing   *pipe.Pipe // a stream owes CONSUMED there
}

// lookEvery is after how many sink calls the clock is read: more often it costs a twentieth of what a record does. So
// a run of that many that takes longer than slowSink counts as one slow call.
const lookEvery = 16

// Value is what Defer was last given in this pass, nil before.
func (p *Pass) Value() any { return p.value }

// Defer sets Value and has after called once when all sinks of the pass have been, on the same goroutine, with no
// lock of this package held. Functions of several calls are called in their order. Like a sink, after must not wait;
// a read of the lane waits for it. Neither argument costs an allocation here; a method value is best made once.
func (p *Pass) Defer(value any, after func()) {
	p.value = value
	p.after = append(p.after, after)
}

// begin starts a pass at a node time.
func (p *Pass) begin(now int64, reading bool) { p.since, p.reading = now, reading }

// called notes that a sink call is over.
func (p *Pass) called(n *node) {
	if p.calls++; p.calls%lookEvery == 0 {
		p.look(n)
	}
}

// look reads the clock and counts what took long since the last time.
func (p *Pass) look(n *node) {
	now := n.now()
	if now-p.since > int64(slowSink) {
		n.stats.sinkSlow.Add(1)
	}
	p.since = now
}

// end ends a pass and returns the node's time, as far as it is known. What was put off counts as time in a sink.
func (p *Pass) end(n *node) (now int64) {
	if p.calls == 0 && len(p.after) == 0 {
		return p.since
	}
	if len(p.after) > 0 && p.calls%lookEvery != 0 {
		p.look(n) // what is put off is a call of its own
	}
	for i := 0; i < len(p.after); i++ { // it may grow
		after := p.after[i]
		p.after[i] = nil
		after()
	}
	p.after, p.value = p.after[:0], nil
	p.look(n)
	n.stats.sinkCalls.Add(uint64(p.calls))
	p.calls = 0
	return p.since
}
