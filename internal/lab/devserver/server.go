package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
)

// Options say how a server is run. The zero value is right for most.
type Options struct {
	// Binary is a devservers binary. Default: what Build returns.
	Binary string
	// Log is told when the binary is built. Default: nobody.
	Log func(string)
	// Dir is etcd's data directory, which stays. Default: a temporary one, removed by Stop.
	Dir string
	// Addr is the host:port to listen on. Default: 127.0.0.1 and a free port outside of the range from which the kernel
	// takes ports for outgoing connections, so that Restart finds it free again.
	Addr string
	// MaxPayload is the largest NATS message in bytes. Default: the server's own, 1 MiB.
	MaxPayload int
	// User and Password are what a NATS client must give. Default: nothing.
	User, Password string
	// NKey is the public nkey of the one user that a NATS server lets in. Default: nothing.
	NKey string
	// TLSCert and TLSKey are PEM files; the server then serves its clients over TLS. Default: plain.
	TLSCert, TLSKey string
	// LogLevel is the server's: debug, info, warn or error. Default: error.
	LogLevel string
	// Stderr gets the server's log as it comes. Default: nobody; LogTail has its end in any case.
	Stderr io.Writer
}

// Server is an etcd or NATS server in a child process. Its methods may be called concurrently. The child ends when this
// process does, however that happens.
type Server struct {
	kind    string
	binary  string
	opts    Options
	dir     string
	tempDir bool
	addr    string

	turn    chan struct{} // capacity 1: who changes its state at the moment
	stopped bool          // owned by who has the turn

	mu   sync.Mutex
	proc *process
}

// StartEtcd starts an etcd server of one member and returns when it takes clients.
func StartEtcd(ctx context.Context, opts Options) (*Server, error) { return start(ctx, "etcd", opts) }

// StartNATS starts a NATS server and returns when it takes clients.
func StartNATS(ctx context.Context, opts Options) (*Server, error) { return start(ctx, "nats", opts) }

// start tries a few ports: between finding one free and the server's binding it, another process may have taken it.
func start(ctx context.Context, kind string, opts Options) (*Server, error) {
	s := &Server{kind: kind, binary: opts.Binary, opts: opts, dir: opts.Dir, addr: opts.Addr,
		turn: make(chan struct{}, 1)}
	if s.binary == "" {
		var err error
		if s.binary, err = Build(ctx, opts.Log); err != nil {
			return nil, err
		}
	}
	if kind == "etcd" && s.dir == "" {
		dir, err := os.MkdirTemp("", "laneway-etcd-")
		if err != nil {
			return nil, fmt.Errorf("devserver: %w", err)
		}
		s.dir, s.tempDir = dir, true
	}
	var err error
	for range 10 {
		if opts.Addr == "" {
			if s.addr, err = freeAddr(); err != nil {
				break
			}
		}
		s.proc, err = startProcess(ctx, s.binary, s.args(), opts.Stderr)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errInUse) || opts.Addr != "" {
			break
		}
	}
	s.removeDir()
	return nil, fmt.Errorf("devserver: %s on %s: %w", kind, s.addr, err)
}

func (s *Server) args() []string {
	args := []string{s.kind, "--listen", s.addr}
	add := func(flag, value string) {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	add("--log-level", s.opts.LogLevel)
	add("--tls-cert", s.opts.TLSCert)
	add("--tls-key", s.opts.TLSKey)
	if s.kind == "etcd" {
		add("--data-dir", s.dir)
		if s.tempDir {
			args = append(args, "--remove-when-orphaned")
		}
		return args
	}
	if s.opts.MaxPayload != 0 {
		add("--max-payload", strconv.Itoa(s.opts.MaxPayload))
	}
	add("--user", s.opts.User)
	add("--password", s.opts.Password)
	add("--nkey", s.opts.NKey)
	return args
}

// freeAddr finds a port that nobody listens on, from 20000 to 29999: below what Linux, macOS and Windows hand out by
// themselves.
func freeAddr() (string, error) {
	var err error
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.IntN(10000)))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", err
}

func (s *Server) process() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// Kind is "etcd" or "nats".
func (s *Server) Kind() string { return s.kind }

// Endpoints are etcd's client endpoints, as URLs; nil for NATS. They are the same after Restart.
func (s *Server) Endpoints() []string { return s.process().ready.Endpoints }

// URL is where NATS clients connect; empty for etcd. It is the same after Restart.
func (s *Server) URL() string { return s.process().ready.URL }

// PID is the process id of the server's present life.
func (s *Server) PID() int { return s.process().ready.PID }

// Done is closed when the server's present life has ended, wanted or not.
func (s *Server) Done() <-chan struct{} { return s.process().Done() }

// LogTail is the end of the log of the server's present life.
func (s *Server) LogTail() string { return s.process().logTail() }

// Pause stops the process where it is (SIGSTOP): connections stay open and nothing answers. When it returns, every
// thread has stopped (on Linux; elsewhere the signal was sent).
func (s *Server) Pause() error {
	if err := s.signal("pause", (*childproc.Child).Pause); err != nil {
		return err
	}
	return awaitStopped(s.PID())
}

// Resume lets a paused process go on.
func (s *Server) Resume() error { return s.signal("resume", (*childproc.Child).Resume) }

func (s *Server) signal(what string, send func(*childproc.Child) error) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if err := send(s.proc.Child); err != nil {
		return fmt.Errorf("devserver: %s %s: %w", what, s.kind, err)
	}
	return nil
}

// Kill ends the process at once (SIGKILL) and joins it. Restart brings it back with its data.
func (s *Server) Kill() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.proc.Kill()
}

// Restart stops the server if it runs, then starts it at the same address with the same data directory.
func (s *Server) Restart(ctx context.Context) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.stopped {
		return fmt.Errorf("devserver: %s was stopped for good", s.kind)
	}
	if s.proc.Running() { // else it was killed, or ended by itself
		if err := s.proc.stop(ctx); err != nil {
			return fmt.Errorf("devserver: %s: %w", s.kind, err)
		}
	}
	// The address may be in the hands of somebody who tries ports, for a moment.
	deadline := time.Now().Add(10 * time.Second)
	for {
		p, err := startProcess(ctx, s.binary, s.args(), s.opts.Stderr)
		if err == nil {
			s.mu.Lock()
			s.proc = p
			s.mu.Unlock()
			return nil
		}
		if !errors.Is(err, errInUse) || time.Now().After(deadline) {
			return fmt.Errorf("devserver: restart of %s on %s: %w", s.kind, s.addr, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stop ends the server gracefully, by force when ctx ends or after 10 s, joins it and removes its temporary directory.
// The error says that it ended otherwise than by exit code 0. Idempotent.
func (s *Server) Stop(ctx context.Context) error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if s.stopped {
		return nil
	}
	s.stopped = true
	var err error
	if s.proc.Running() {
		err = s.proc.stop(ctx)
	}
	s.removeDir()
	if err != nil {
		return fmt.Errorf("devserver: %s: %w", s.kind, err)
	}
	return nil
}

func (s *Server) removeDir() {
	if s.tempDir {
		_ = os.RemoveAll(s.dir)
	}
}
