package loadgen

import "time"

// probeInterval is how often a loop measures how late it is.
const probeInterval = 10 * time.Millisecond
