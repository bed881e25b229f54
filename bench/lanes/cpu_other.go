//go:build !unix

package lanes

import "time"

// ProcessCPU is not known here.
func ProcessCPU() (user, system time.Duration) { return 0, 0 }
