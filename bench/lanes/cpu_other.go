//go:build !unix

package lanes

import "time"

// processCPU is not known here.
func processCPU() time.Duration { return 0 }
