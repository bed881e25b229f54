package peers

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/hashicorp/yamux"

	"github.com/laneway-ai/laneway/internal/planebench"
)

// Yamux is one TCP connection from each frontend to each worker process, with a yamux stream for each response.
func Yamux() planebench.Peer {
	return carrier{listen: listenTCP(yamuxServer), dial: dialTCP(yamuxClient)}.peer("yamux")
}

// yamuxConfig is the default, but that all streams may be opened at once, and that what it logs goes nowhere.
func yamuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = 16384
	c.LogOutput = io.Discard
	return c
}

func yamuxServer(conn net.Conn) (session, error) {
	s, err := yamux.Server(conn, yamuxConfig())
	return yamuxSession{s}, err
}

func yamuxClient(conn net.Conn) (session, error) {
	s, err := yamux.Client(conn, yamuxConfig())
	return yamuxSession{s}, err
}

type yamuxSession struct{ s *yamux.Session }

func (y yamuxSession) Open(context.Context) (io.ReadWriteCloser, error) { return y.s.Open() }

func (y yamuxSession) Accept(ctx context.Context) (io.ReadWriteCloser, error) {
	return y.s.AcceptStreamWithContext(ctx)
}

func (y yamuxSession) Close() error {
	if err := y.s.Close(); err != nil && !errors.Is(err, yamux.ErrSessionShutdown) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
