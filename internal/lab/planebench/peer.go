package planebench

import (
	"context"
	"log/slog"

	"github.com/laneway-ai/laneway/transport"
)

// Peer is another way to bring records from workers to frontends, measured beside ours with the same engines, records
// and checks. What it needs lives outside of the library, so a program that has peers hands them to Execute
// (Config.Peers) and to Child.
//
// A peer carries the request itself, the way its users would. How a run ends is the harness's business, the same for
// all: the frontends tell the worker processes over the request path, and the engines finish what runs.
type Peer struct {
	// Name is that of its arms, before the delivery: "grpc". It must not be that of a plane.
	Name string
	// Deliveries are the ways in which its responses can be consumed.
	Deliveries []string
	// Over is the plane whose transport the peer gets, "" when it brings its own connections.
	Over string
	// Worker and Frontend make the two sides, each in a process of its own. serve starts the response that a request
	// asks for; it may be called concurrently, and its error is one of the request.
	Worker   func(cfg PeerConfig, serve func(request []byte, w PeerWriter) error) (PeerWorker, error)
	Frontend func(cfg PeerConfig) (PeerFrontend, error)
	// Broker is what runs between the two in a process of its own, nil when nothing does.
	Broker func(cfg PeerConfig) (PeerBroker, error)
}

// PeerConfig is what one process of a peer is told.
type PeerConfig struct {
	Index     int // of the process, among those of its role
	Delivery  string
	Load      Load
	Transport transport.Transport // of plane Over; the harness closes it, after the peer
	Broker    string              // the broker's address
	Log       *slog.Logger
}

// PeerWorker is the writing side in one worker process. Close ends its connections, joins its goroutines and is
// idempotent.
type PeerWorker interface {
	// Listen returns the address that the frontends connect to.
	Listen(ctx context.Context) (string, error)
	// Flush comes at the end of each pass of an engine.
	Flush()
	Close() error
}

// PeerWriter is one response at the worker. An engine uses it from one goroutine.
type PeerWriter interface {
	// TryPut adds a record, which may be reused when it returns. It never waits: responseplane.ErrWindowFull says that
	// there is no room, and that the function of OnWritable will be called.
	TryPut(rec []byte) error
	// PutComplete ends the response. It never waits and always has room.
	PutComplete(trailer []byte) error
	OnWritable(func())
	// Err is not nil when the response can no longer be written.
	Err() error
}

// PeerFrontend is the consuming side. Close ends its connections, with all open responses, joins its goroutines and is
// idempotent.
type PeerFrontend interface {
	// Connect opens what is shared by the responses of a worker process.
	Connect(ctx context.Context, worker int, address string) error
	// Open asks a worker process for a response. request may be reused when it returns.
	Open(ctx context.Context, worker int, request []byte) (PeerResponse, error)
	Close() error
}

// PeerResponse is one response at the frontend. A peer with the delivery sink has OnRecords too.
type PeerResponse interface {
	// NextBatch returns the records that are ready, at least one, valid until the next call; io.EOF after a complete
	// response.
	NextBatch(ctx context.Context) ([][]byte, error)
	// Trailer is that of PutComplete, after the end.
	Trailer() []byte
	// Kill makes NextBatch return an error; the worker may learn of it or not. It is called after a run that has gone
	// wrong.
	Kill()
	// Close gives the response back, after its end.
	Close() error
}

// PeerSink is what a response must have that is consumed by a sink: one call at a time, in order, io.EOF in the last
// one of a complete response.
type PeerSink interface {
	OnRecords(func(records [][]byte, err error) bool)
}

// PeerBroker runs in a process of its own, whose CPU counts into the total.
type PeerBroker interface {
	Start(ctx context.Context) (address string, err error)
	Close() error
}

// peerNamed finds a peer, nil when there is none.
func peerNamed(peers []Peer, name string) *Peer {
	for i := range peers {
		if peers[i].Name == name {
			return &peers[i]
		}
	}
	return nil
}
