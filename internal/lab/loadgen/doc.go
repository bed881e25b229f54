// Package loadgen makes load on an OpenAI-compatible server over HTTP and measures what its clients see.
//
// Run drives a closed loop (a fixed number of open requests) or a fixed schedule of arrivals, reads the event streams,
// verifies their text where it can be verified, and writes a run directory (package report). The client is its own: raw
// connections that are kept between requests, and an incremental HTTP/1.1 and event-stream reader that allocates
// nothing per event, because net/http's client costs as much as the server it measures. On Linux one loop serves
// thousands of connections: with receives of an io_uring that stay armed, where the kernel allows it (client
// "io_uring"), else with epoll and a read for each event (client "epoll"). Elsewhere, and for https, a goroutine serves
// each connection (client "goroutines"). All have the same reader and the same schedule; the report names the client,
// and why it is not the first.
package loadgen
