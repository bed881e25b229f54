//go:build !unix

package transporttest

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
