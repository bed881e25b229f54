// Package endtoend has tests only: real frontends and worker processes on a day on which etcd is away, NATS restarts,
// and workers come, go, die and fall silent. Every answer is read to its end and every token checked.
//
// Bounds are ten times what is aimed at, since the machines that run tests are busy; the times that were measured are
// in the log (go test -v).
package endtoend
