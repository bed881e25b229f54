// Package peers holds the other ways to bring records from workers to frontends, each as its users would write it, for
// measurements beside Laneway.
//
// All run in the harness of internal/lab/planebench: its engines, records and checks, its processes, its clock. A peer
// that has a stream for each response has a goroutine for each at both ends; what an engine puts waits in a queue of at
// most queueRecords records, past which the engine leaves the response out until there is room. Nothing is resumed: a
// connection that dies ends its responses with an error.
package peers

import (
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/transport"
)

// All are all peers, the floor first.
func All() []planebench.Peer {
	return []planebench.Peer{
		Bare(transport.PlaneTCP), Bare(transport.PlaneQUIC),
		GRPC(), Yamux(), Smux(), NATS(), SSE(), TCPConnection(), QUICStream(),
	}
}

// Names are those of all peers.
func Names() (names []string) {
	for _, p := range All() {
		names = append(names, p.Name)
	}
	return names
}

// pulled is the delivery of a peer whose responses are read by a goroutine each.
func pulled() []string { return []string{planebench.Pull} }
