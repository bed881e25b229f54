package dial

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
	// backoffDenied is the longest pause after a node said that it is somebody else, or does not take this one: nothing
	// but a record or a certificate changes that, and each try costs both a handshake.
	backoffDenied = time.Minute
	// maxPerSecond is how many connections of a lane are dialled in any second, whatever comes of them.
	maxPerSecond = 20
)

// backoff is how long to wait after some failures: longer each time, with jitter.
func backoff(failures int, most time.Duration) time.Duration {
	d := min(backoffFirst<<min(failures, 12), most)
	return d/2 + rand.N(d/2+1)
}

// pace is how often the lanes with one index of a node are dialled. It outlives links, so that a node that ends each of
// them at once is not dialled ever faster.
type pace struct {
	mu       sync.Mutex
	failures int // without progress between them
	dials    [maxPerSecond]int64
	next     int // in dials: the oldest
}

// count takes note of what came of a connection, or of an attempt to make one.
func (c *pace) count(progress bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failures++; progress {
		c.failures = 0
	}
}

// attempts is how many failed since there was progress.
func (c *pace) attempts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failures
}

// delay is how long the next attempt waits: not at all after progress.
func (c *pace) delay() time.Duration {
	if n := c.attempts(); n > 0 {
		return backoff(n-1, backoffMax)
	}
	return 0
}

// wait is how long it is until one more connection may be dialled, and dialled takes note that one was.
func (c *pace) wait(now int64) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oldest := c.dials[c.next]; oldest != 0 {
		return time.Duration(max(oldest+int64(time.Second)-now, 0))
	}
	return 0
}

func (c *pace) dialled(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials[c.next] = now
	c.next = (c.next + 1) % maxPerSecond
}
