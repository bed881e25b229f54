// Package memory is a plane inside one process, for tests and for programs that host both ends.
//
// Waiting is on sync.Cond and channels only and time comes from package time, so a network may live in a
// testing/synctest bubble. Faults (latency, rate, stall, cut, refused and silent addresses) can be set on the whole
// network or on one lane while it runs.
package memory
