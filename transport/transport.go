package transport

import (
	"context"
	"net"
)

// Names of the planes, as they stand in flags, discovery records and metrics.
const (
	PlaneTCP    = "tcp"
	PlaneTLS    = "tls"
	PlaneQUIC   = "quic"
	PlaneMemory = "memory"
)

// Transport makes lanes of one plane. It is configured when it is constructed. All methods may be called concurrently.
type Transport interface {
	// Plane is the name of the plane, one of the Plane constants.
	Plane() string

	// Dial opens one lane to one endpoint of a peer. It returns when the lane can carry bytes (handshakes done), or
	// with ctx's error, an *IdentityError, *CertificateError, *RefusedError or *ProtocolError (the peer is not who it
	// should be, or thinks so of this node), or an error that says what was dialled. With TLS 1.3 a dialler whom its
	// peer refuses may learn it only from the lane's first Read, by the same *RefusedError.
	Dial(ctx context.Context, req DialRequest) (Conn, error)

	// Listen opens the server endpoints of this node: n sockets, each with its own port. A bind address with a fixed
	// port P binds P..P+n-1; port 0 lets the kernel choose each. An error names the port that could not be bound.
	Listen(ctx context.Context, bind string, n int) (Listener, error)

	// Sockets describes every socket that the transport has open now.
	Sockets() []SocketInfo

	// Counters are the totals since construction, closed lanes included.
	Counters() Counters

	// Close closes all lanes, listeners and sockets and joins their goroutines. It is idempotent.
	Close() error
}

// DialRequest says which endpoint of which node to dial, and for which lane.
type DialRequest struct {
	// Address is the host:port of one endpoint.
	Address string
	// Peer is the node that must answer. Planes that prove identity fail with an *IdentityError when another one does;
	// plane tcp and certificates of an authority cannot tell, there the mux compares what HELLO claims. Zero accepts
	// any peer.
	Peer NodeID
	// Lane is the index of the lane on its link. Each (link, lane) gets a socket of its own.
	Lane int
}

// Listener accepts lanes on all endpoints of a node.
type Listener interface {
	// Accept returns the next lane. It fails with ErrClosed after Close. A failing peer or a full descriptor table
	// never ends the listener: that is retried with backoff and logged inside. On plane quic a lane shows up only with
	// the dialler's first byte, so the dialler must write first; one that does not is dropped after the handshake
	// timeout.
	Accept(ctx context.Context) (Conn, error)
	// Endpoints are the bound addresses, in order, one per socket. A wildcard host stands as it was bound.
	Endpoints() []net.Addr
	// Vouch says that the node at this address has, or has had, a link. What peers may have unfinished is bounded on
	// planes with a handshake (tls, quic); the addresses that were vouched for, the last 4,096, have places of their
	// own, which strangers cannot take.
	Vouch(addr net.Addr)
	// Close unblocks Accept, closes the sockets and joins the listener's goroutines. Accepted lanes stay open where
	// the plane allows it (tcp, tls, memory); on quic they share the socket and end with it. Idempotent.
	Close() error
}

// Conn is one lane.
//
// One goroutine may Read while another one Writes, with Write or WriteBuffers; neither may be done by two goroutines at
// once. Close, CloseWrite and Info may be called at any time by anyone.
type Conn interface {
	// Read fills p with what has arrived, at least one byte. It returns io.EOF after the peer's CloseWrite, ErrClosed
	// after Close, else an error that unwraps to what the plane reported.
	Read(p []byte) (int, error)

	// Write sends all of p or fails; n says how much was taken. p may be reused when Write returns.
	Write(p []byte) (n int, err error)

	// WriteBuffers sends the segments one behind the other, all of them or it fails, as one Write of their bytes would.
	// Nothing of bufs is changed, or used when WriteBuffers has returned. It counts as a Write: no other may run
	// meanwhile.
	WriteBuffers(bufs [][]byte) error

	// CloseWrite ends this side's bytes; the peer reads io.EOF after what was written. Reading goes on.
	CloseWrite() error

	// Close aborts the lane at once: what was not delivered may be dropped (TCP: linger 0, so that the kernel does not
	// go on delivering). It unblocks Read and Write on both sides and never waits for the peer. Idempotent.
	Close() error

	// Info describes the lane.
	Info() ConnInfo
}

// TryWriter is implemented by lanes that can write without blocking (plane tcp).
type TryWriter interface {
	// TryWrite writes what fits now and returns how much that was; n < len(p) with a nil error means that the rest
	// would have had to wait. It must not run at the same time as Write.
	TryWrite(p []byte) (n int, err error)

	// TryWriteBuffers is the same for segments: n is how many of their bytes were taken, in order. Nothing of bufs is
	// changed, or used when it has returned, so the caller finds by n where to go on.
	TryWriteBuffers(bufs [][]byte) (n int, err error)
}

// ConnInfo describes a lane.
type ConnInfo struct {
	Plane  string
	Local  net.Addr
	Remote net.Addr
	// Peer is the identity that the plane has proven, zero where it proves none (tcp, memory, certificates of an
	// authority).
	Peer NodeID
	// Proven says whether Peer was proven.
	Proven bool
	// Lane is DialRequest.Lane on the dialling side and -1 on the accepting side.
	Lane int
}

// Socket roles.
const (
	RoleLane     = "lane"     // a dialled lane's own socket
	RoleEndpoint = "endpoint" // a server endpoint
)

// SocketInfo describes one socket: what was asked of the kernel and what it granted. Sizes are bytes.
type SocketInfo struct {
	Plane string
	// RoleLane or RoleEndpoint; accepted lanes of planes tcp and tls have sockets too: RoleLane with Lane -1
	Role string
	Lane int // index of the lane, -1 for endpoints
	Port int // local port
	// Granted is what getsockopt reads back (Linux doubles what was asked); 0 asked means that the kernel tunes.
	RecvAsked, RecvGranted int
	SendAsked, SendGranted int
	// StreamWindow is the flow control window that this end gives a lane of the socket (quic only). Unless it was set
	// it follows from RecvGranted.
	StreamWindow int
	// MaxMTU is the largest UDP payload that this end sends: fixed, or the end of path MTU discovery (quic only).
	MaxMTU int
	// NotSentLowat is TCP_NOTSENT_LOWAT, 0 where it was left to the kernel (tcp and tls only).
	NotSentLowat int
	// GRO and GSO say whether UDP receive and send offload are in use (quic only).
	GRO, GSO bool
	// Drops counts datagrams that the kernel dropped at this socket (quic only).
	Drops uint64
	// Packets counts datagrams in and out of this socket's lanes (quic only).
	PacketsIn, PacketsOut uint64
}

// Counters are totals of a transport. Those that a plane does not have stay zero.
type Counters struct {
	BytesIn, BytesOut uint64 // bytes of the lanes, without headers of lower layers
	// QUIC packets received, sent, seen as lost by this side as the sender, and dropped inside the library because a
	// connection's queue was full (invisible to the kernel's counters; on Linux: read from the socket and never
	// received, so that damaged and doubled packets count once they are as many as a queue holds).
	PacketsIn, PacketsOut, PacketsLost, LibraryDrops uint64
	// Datagrams at the sockets, one by one also where offload joined them, and those that the kernel dropped there
	// (quic on Linux; what a closed socket had counts on).
	DatagramsIn, DatagramsOut, SocketDrops uint64
	// Calls that moved bytes between this process and the kernel: system calls of the sockets (quic on Linux), or calls
	// of the lanes' Read and Write (tcp, tls).
	RecvCalls, SendCalls                     uint64
	Dials, DialErrors, Accepts, AcceptErrors uint64
}
