//go:build race

package main

func init() { largeRun = 25_000 } // the race detector makes it ten times as slow, and has seen all there is after a tenth
