//go:build race

package main

// the race detector makes it ten times as slow, and has seen all there is after a tenth
func init() { largeRun = 25_000 }
