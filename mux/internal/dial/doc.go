// Package dial keeps a frontend's links: it dials the lanes of each node that it is told of, and gives each lane's pipe
// its connections, one at a time. It knows pipes and no streams.
//
// Each node has a goroutine that begins a link when there is none, and each lane of a link one, its keeper, that gives
// the pipe another connection when one has died (takeover.go). A fallback to another plane, the return to a better one
// and what a death makes necessary are the same takeover.
package dial
