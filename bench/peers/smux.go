package peers

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/xtaci/smux"

	"github.com/laneway-ai/laneway/internal/planebench"
)

// Smux is one TCP connection from each frontend to each worker process, with a smux stream for each response.
func Smux() planebench.Peer {
	return carrier{listen: listenTCP(smuxServer), dial: dialTCP(smuxClient)}.peer("smux")
}

// smuxConfig is the default, but that streams have windows of their own (version 2).
func smuxConfig() *smux.Config {
	c := smux.DefaultConfig()
	c.Version = 2
	return c
}

func smuxServer(conn net.Conn) (session, error) {
	s, err := smux.Server(conn, smuxConfig())
	return smuxSession{s}, err
}

func smuxClient(conn net.Conn) (session, error) {
	s, err := smux.Client(conn, smuxConfig())
	return smuxSession{s}, err
}

type smuxSession struct{ s *smux.Session }

func (x smuxSession) Open(context.Context) (io.ReadWriteCloser, error) {
	return x.stream(x.s.OpenStream())
}

// Accept ends with the session.
func (x smuxSession) Accept(context.Context) (io.ReadWriteCloser, error) {
	return x.stream(x.s.AcceptStream())
}

func (x smuxSession) stream(s *smux.Stream, err error) (io.ReadWriteCloser, error) {
	if err != nil {
		return nil, err // not s: a nil *Stream in an interface is not nil
	}
	return s, nil
}

func (x smuxSession) Close() error {
	if err := x.s.Close(); err != nil && !errors.Is(err, io.ErrClosedPipe) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
