package transportbench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/laneway-ai/laneway/internal/program/seldom"
)

// request and reply are lines of JSON on a control connection.
type request struct {
	Op   string          `json:"op"`
	Body json.RawMessage `json:"body,omitempty"`
}

type reply struct {
	Err  string          `json:"error,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
}

// RemoteError is what the other side said.
type RemoteError struct{ Op, Text string }

func (e *RemoteError) Error() string { return "the server cannot " + e.Op + ": " + e.Text }

// Handler answers the requests of one control connection, one at a time. Close ends what it holds.
type Handler interface {
	Handle(ctx context.Context, op string, body []byte) (any, error)
	Close() error
}

// maxControl bounds a line of a control connection, in bytes. The terms of 256 streams take some 40 KB.
const maxControl = 1 << 20

// Server answers control connections. Close it.
type Server struct {
	l      net.Listener
	log    *slog.Logger
	make   func(host string) Handler
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// StartServer listens on address. create makes the handler of a connection; host is the address of this machine that
// the client has dialled.
func StartServer(ctx context.Context, address string, log *slog.Logger, create func(host string) Handler) (*Server,
	error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	s := &Server{l: l, log: seldom.Logger(log), make: create}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept) // ends with the listener
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.l.Addr().String() }

func (s *Server) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { // ends with the connection, or with Close
			stop := context.AfterFunc(s.ctx, func() { c.Close() })
			defer stop()
			defer c.Close()
			if err := s.serve(c); err != nil && s.ctx.Err() == nil {
				s.log.Warn("a client has left", "client", c.RemoteAddr().String(), "error", err)
			}
		})
	}
}

func (s *Server) serve(c net.Conn) (err error) {
	host, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	h := s.make(host)
	defer func() { err = errors.Join(err, h.Close()) }()
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxControl)
	for in.Scan() {
		var req request
		if err := json.Unmarshal(in.Bytes(), &req); err != nil {
			return fmt.Errorf("control: %w", err)
		}
		var rep reply
		v, err := h.Handle(s.ctx, req.Op, req.Body)
		if err == nil {
			rep.Body, err = json.Marshal(v)
		}
		if err != nil {
			rep.Err = err.Error()
		}
		if err := json.NewEncoder(c).Encode(rep); err != nil {
			return fmt.Errorf("control: %w", err)
		}
	}
	return in.Err()
}

// Close ends all connections and joins their goroutines.
func (s *Server) Close() error {
	s.cancel()
	err := s.l.Close()
	s.wg.Wait()
	return err
}

// Control is a client's control connection. Its calls belong to one goroutine.
type Control struct {
	c    net.Conn
	in   *bufio.Scanner
	stop func() bool
}

// DialControl connects to a Server. The connection ends with ctx.
func DialControl(ctx context.Context, address string) (*Control, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s (start the other side with --listen): %w", address, err)
	}
	in := bufio.NewScanner(c)
	in.Buffer(nil, maxControl)
	return &Control{c: c, in: in, stop: context.AfterFunc(ctx, func() { c.Close() })}, nil
}

// Call sends a request and reads the answer into out, unless that is nil.
func (c *Control) Call(op string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(c.c).Encode(request{op, b}); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if !c.in.Scan() {
		return errors.Join(errors.New("the server has closed the control connection"), c.in.Err())
	}
	var rep reply
	if err := json.Unmarshal(c.in.Bytes(), &rep); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if rep.Err != "" {
		return &RemoteError{op, rep.Err}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(rep.Body, out)
}

// Close ends the connection, and with it what the server holds for it.
func (c *Control) Close() error {
	c.stop()
	return c.c.Close()
}
