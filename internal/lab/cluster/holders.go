package cluster

import (
	"fmt"
	"time"
)

// HoldShare is the share of its requests that a holder on purpose holds back.
const HoldShare = 0.5

// minHoldDelay keeps the default long enough for a machine that is busy with other things, where a first token takes
// longer than it should.
const minHoldDelay = time.Second

// maxHoldDelay is the longest that a worker takes.
const maxHoldDelay = time.Hour

// holderMargin is by how much more than a holder needs the default moves its mean time to first response.
const holderMargin = 2

// holdDelay is how long a holder holds a request. Half of them are held, so the mean time to first response grows by
// half of it. A holder's must exceed the others' by 3 inter-token latencies and by twice their own, which is a prefill
// and the wait for a pass.
func (c Config) holdDelay() time.Duration {
	if c.HoldDelay > 0 {
		return c.HoldDelay
	}
	needed := max(3*c.ITL, 2*(c.TTFT+c.ITL))
	return max(minHoldDelay, time.Duration(float64(holderMargin*needed)/HoldShare))
}

// checkHolders is what Validate says about --holders.
func (c Config) checkHolders() error {
	if c.Holders < 0 || c.Holders > c.Processes/2 {
		return fmt.Errorf("--holders %d of --processes %d: use 0 to %d, a holder is one beside the median process, "+
			"so at most half can be", c.Holders, c.Processes, c.Processes/2)
	}
	if c.Holders == 0 {
		return nil
	}
	switch d := c.holdDelay(); {
	case d > maxHoldDelay:
		return fmt.Errorf("--holders %d would hold requests back for %s, a worker does at most %s: use a shorter "+
			"--inter-token-latency, or --hold-delay", c.Holders, d, maxHoldDelay)
	case time.Duration(HoldShare*float64(d)) <= 3*c.ITL:
		return fmt.Errorf("--hold-delay %s makes no holder: with half of the requests held it must exceed 6 "+
			"inter-token latencies, %s", d, 6*c.ITL)
	}
	return nil
}

// holdArgs are the flags that make worker process i a holder, none when it is not to be one.
func (c Config) holdArgs(i int) []string {
	if i >= c.Holders {
		return nil
	}
	return []string{fmt.Sprintf("--hold-share=%v", HoldShare), "--hold-delay=" + c.holdDelay().String()}
}
