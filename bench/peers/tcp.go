package peers

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// TCPConnection is a TCP connection for each response, dialled by the frontend.
func TCPConnection() planebench.Peer {
	return carrier{
		listen: listenTCP(func(conn net.Conn) (session, error) { return &oneStream{conn: conn}, nil }),
		dial: func(_ context.Context, address string) (session, error) {
			return dialEach{address}, nil
		},
	}.peer("tcp-connection")
}

// dialEach dials for each response.
type dialEach struct{ address string }

func (d dialEach) Open(ctx context.Context) (io.ReadWriteCloser, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", d.address)
}

func (d dialEach) Accept(context.Context) (io.ReadWriteCloser, error) { return nil, net.ErrClosed }

func (d dialEach) Close() error { return nil }

// oneStream is a connection that is the stream of its one response.
type oneStream struct {
	conn  net.Conn
	taken atomic.Bool
}

func (o *oneStream) Open(context.Context) (io.ReadWriteCloser, error) { return nil, net.ErrClosed }

func (o *oneStream) Accept(context.Context) (io.ReadWriteCloser, error) {
	if o.taken.Swap(true) {
		return nil, io.EOF
	}
	return o.conn, nil
}

// Close closes a connection that its stream may have closed already.
func (o *oneStream) Close() error {
	if err := o.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// listenTCP makes a session of each TCP connection that comes.
func listenTCP(wrap func(net.Conn) (session, error)) func(context.Context) (listener, error) {
	return func(ctx context.Context) (listener, error) {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return tcpListener{ln, wrap}, nil
	}
}

type tcpListener struct {
	ln   net.Listener
	wrap func(net.Conn) (session, error)
}

// Accept ends with the listener.
func (l tcpListener) Accept(context.Context) (session, error) {
	conn, err := l.ln.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(conn)
}

func (l tcpListener) Address() string { return l.ln.Addr().String() }

func (l tcpListener) Close() error {
	if err := l.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// dialTCP makes a session of one TCP connection.
func dialTCP(wrap func(net.Conn) (session, error)) func(context.Context, string) (session, error) {
	return func(ctx context.Context, address string) (session, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return wrap(conn)
	}
}
