package peers

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/hashicorp/yamux"
	"github.com/xtaci/smux"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// Yamux is one TCP connection from each frontend to each worker process, with a yamux stream for each response.
func Yamux() planebench.Peer {
	cfg := yamux.DefaultConfig()
	cfg.AcceptBacklog = 16384 // all streams may be opened at once
	cfg.LogOutput = io.Discard
	return muxer("yamux", cfg, yamux.Server, yamux.Client, (*yamux.Session).Open,
		(*yamux.Session).AcceptStreamWithContext, yamux.ErrSessionShutdown)
}

// Smux is one TCP connection from each frontend to each worker process, with a smux stream for each response.
func Smux() planebench.Peer {
	cfg := smux.DefaultConfig()
	cfg.Version = 2 // streams have windows of their own
	accept := func(s *smux.Session, _ context.Context) (*smux.Stream, error) { return s.AcceptStream() }
	return muxer("smux", cfg, smux.Server, smux.Client, (*smux.Session).OpenStream, accept, io.ErrClosedPipe)
}

// muxer is the peer of a library that has streams on one TCP connection. ended is what its Close may say of a session
// that the other side has ended.
func muxer[C any, S io.Closer, O, A io.ReadWriteCloser](name string, cfg *C, server, client func(io.ReadWriteCloser,
	*C) (S, error), open func(S) (O, error),
	accept func(S, context.Context) (A, error), ended error) planebench.Peer {
	over := func(create func(io.ReadWriteCloser, *C) (S, error)) func(net.Conn) (session, error) {
		return func(conn net.Conn) (session, error) {
			s, err := create(conn, cfg)
			if err != nil {
				return nil, err
			}
			return &muxSession{
				open:   func() (io.ReadWriteCloser, error) { return stream(open(s)) },
				accept: func(ctx context.Context) (io.ReadWriteCloser, error) { return stream(accept(s, ctx)) },
				close:  s.Close, ended: ended,
			}, nil
		}
	}
	return carrier{listen: listenTCP(over(server)), dial: dialTCP(over(client))}.peer(name)
}

type muxSession struct {
	open   func() (io.ReadWriteCloser, error)
	accept func(context.Context) (io.ReadWriteCloser, error)
	close  func() error
	ended  error
}

func (m *muxSession) Open(context.Context) (io.ReadWriteCloser, error) { return m.open() }

// Accept ends with ctx or with the session.
func (m *muxSession) Accept(ctx context.Context) (io.ReadWriteCloser, error) { return m.accept(ctx) }

func (m *muxSession) Close() error {
	if err := m.close(); err != nil && !errors.Is(err, m.ended) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// stream leaves out what comes with an error: a nil pointer in an interface is not nil.
func stream[T io.ReadWriteCloser](s T, err error) (io.ReadWriteCloser, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
