//go:build !linux

package planebench

import "time"

// hostClock is the wall clock where the monotonic one cannot be compared between processes.
func hostClock() int64 { return time.Now().UnixNano() }
