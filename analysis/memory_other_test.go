//go:build !linux

package main

import "os"

// peakMemory is not known here in one unit.
func peakMemory(*os.ProcessState) (int64, bool) { return 0, false }
