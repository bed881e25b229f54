package planebench

import "time"

// clock reads the host's monotonic clock, which is the same in all processes. Go reads that clock without a system
// call, so it is asked once where zero is.
type clock struct {
	base  int64
	epoch time.Time
}

// newClock sets the clock. Of a few readings it takes the one with the least time around it.
func newClock() clock {
	var c clock
	best := time.Duration(1<<63 - 1)
	for range 16 {
		before := time.Now()
		host := hostClock()
		if took := time.Since(before); took < best {
			best, c = took, clock{base: host - int64(took/2), epoch: before}
		}
	}
	return c
}

// now is nanoseconds of the host's monotonic clock.
func (c clock) now() int64 { return c.base + int64(time.Since(c.epoch)) }
