package quic

import (
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/internal/base"
)

// Application error codes of CONNECTION_CLOSE.
const (
	codeClosed   quicgo.ApplicationErrorCode = 0 // Close
	codeNoStream quicgo.ApplicationErrorCode = 1 // the dialler opened no stream in time
	codeBusy     quicgo.ApplicationErrorCode = 2 // too many lanes wait for Accept
)

// closeGrace is how long Close waits for CONNECTION_CLOSE to leave the host. Only a socket whose send buffer is full
// and does not drain takes that long; then the teardown goes on without the peer's being told.
const closeGrace = 250 * time.Millisecond

// lane is a QUIC connection with its stream.
type lane struct {
	t      *Transport
	conn   *quicgo.Conn
	stream *quicgo.Stream
	info   transport.ConnInfo
	gate   base.Gate
	join   base.Joiner
	gone   chan struct{} // closed when the lane is torn down

	// Of a dialled lane: what it alone uses. nil on accepted lanes.
	sock *socket
	tr   *quicgo.Transport
	// Of an accepted lane.
	ln    *listener
	leave func() // its endpoint counts it no more
}

var _ transport.Conn = (*lane)(nil)

func newLane(t *Transport, conn *quicgo.Conn, stream *quicgo.Stream, index int) (*lane, error) {
	id, proven, err := t.cfg.security().Peer(conn.ConnectionState().TLS, conn.RemoteAddr().String())
	if err != nil {
		return nil, err
	}
	return &lane{
		t: t, conn: conn, stream: stream, gone: make(chan struct{}),
		info: transport.ConnInfo{
			Plane: t.Plane(), Local: conn.LocalAddr(), Remote: conn.RemoteAddr(), Peer: id, Proven: proven, Lane: index,
		},
	}, nil
}

// Read implements transport.Conn.
func (l *lane) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := l.stream.Read(p)
	if n > 0 {
		l.t.tally.BytesIn.Add(uint64(n))
		return n, nil // an error comes again
	}
	return 0, l.mapped(err)
}

// Write implements transport.Conn.
func (l *lane) Write(p []byte) (int, error) {
	if err := l.gate.Enter(); err != nil {
		return 0, err
	}
	n, err := l.stream.Write(p)
	return l.wrote(n, err)
}

// WriteBuffers implements transport.Conn.
func (l *lane) WriteBuffers(bufs [][]byte) error {
	if err := l.gate.Enter(); err != nil {
		return err
	}
	_, err := l.wrote(l.join.Write(l.stream, bufs))
	return err
}

// wrote counts, maps the error, and ends the lane's bytes if that was asked for while the write ran.
func (l *lane) wrote(n int, err error) (int, error) {
	l.t.tally.BytesOut.Add(uint64(n))
	if l.gate.Leave() {
		if e := l.stream.Close(); err == nil {
			err = e
		}
	}
	return n, l.mapped(err)
}

// CloseWrite implements transport.Conn. If a Write runs, its bytes go first.
func (l *lane) CloseWrite() error {
	now, err := l.gate.Half()
	if now {
		err = l.mapped(l.stream.Close())
	}
	return err
}

// Close implements transport.Conn. The peer is told, but not waited for.
func (l *lane) Close() error {
	if l.gate.Close() {
		go l.tearDown() // owned by the transport, whose Close waits for it
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-l.gone:
	case <-grace.C:
		if l.sock != nil {
			l.sock.Close()
		}
	}
	return nil
}

func (l *lane) tearDown() {
	l.conn.CloseWithError(codeClosed, "") // returns when CONNECTION_CLOSE was handed to the socket
	if l.tr != nil {
		l.tr.Close()
		l.sock.Close()
	}
	if l.ln != nil {
		l.leave()
		l.ln.forget(l)
	}
	l.t.forget(l)
	close(l.gone) // whoever has closed the lane finds its counts in the past, and its socket no more
	l.t.wg.Done()
}

// mapped turns what a read or write gave after Close into ErrClosed.
func (l *lane) mapped(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if l.gate.Closed() {
		return transport.ErrClosed
	}
	return l.t.explained(err, l.info.Remote.String()) // a refused client learns it after its handshake
}

// Info implements transport.Conn.
func (l *lane) Info() transport.ConnInfo { return l.info }

// laneSet is the lanes of a listener.
type laneSet struct {
	mu    sync.Mutex
	lanes map[*lane]struct{}
}

func (s *laneSet) add(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes[l] = struct{}{}
}

func (s *laneSet) forget(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lanes, l)
}

func (s *laneSet) list() []*lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.lanes))
}
