// Package mock is a decode engine with continuous batching and without a model: it keeps the times of a real one and
// emits text that the far end can verify (package tokentext).
//
// An engine is one goroutine with one timer. It holds a waiting queue and a running set. A request that is admitted to
// the running set is prefilled first; its first token leaves when that is done, and one more token at every pass of the
// engine. Passes follow a schedule of their own, so they do not drift with the load, and those of different engines are
// spread over the interval (Phase). A pass makes one token on each running request and ends with one flush. A pass that
// the machine delays is late and says so; passes that were missed are not made up in a burst.
//
// The engine never blocks: a response whose window is full is parked and goes on at the first pass after there is room
// again. Each pass looks whether its requests are still wanted, and drops those that are not.
package mock
