package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

func startNATS(args []string) (*running, error) {
	fs := flag.NewFlagSet("devservers nats", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:0", "`host:port` for clients; port 0 takes a free one")
	maxPayload := fs.Int("max-payload", server.MAX_PAYLOAD_SIZE, "largest message in `bytes`")
	level := fs.String("log-level", "error", "debug, info, warn or error; goes to stderr")
	user := fs.String("user", "", "the `name` that clients must give, with --password")
	password := fs.String("password", "", "the password of --user")
	nkey := fs.String("nkey", "", "the public `key` of the one user that may connect")
	cert := fs.String("tls-cert", "", "serve clients over TLS with this certificate `file`")
	key := fs.String("tls-key", "", "the key `file` of --tls-cert")
	if err := parse(fs, args); err != nil {
		return nil, err
	}
	host, portText, err := net.SplitHostPort(*listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 0 || port > 65535 {
		return nil, fmt.Errorf("--listen %q: the port is not 0 to 65535", *listen)
	}
	if *maxPayload < 1 || *maxPayload > server.MAX_PAYLOAD_MAX_SIZE {
		return nil, fmt.Errorf("--max-payload %d is not 1 to %d", *maxPayload, server.MAX_PAYLOAD_MAX_SIZE)
	}
	if (*cert == "") != (*key == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	if (*user == "") != (*password == "") {
		return nil, errors.New("--user and --password go together")
	}
	if err := probe(*listen); err != nil {
		return nil, fmt.Errorf("nats on %s: %w", *listen, err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}

	opts := &server.Options{
		ServerName: "laneway-dev", Host: host, Port: port, MaxPayload: int32(*maxPayload),
		NoSigs: true, Username: *user, Password: *password,
	}
	if *nkey != "" {
		opts.Nkeys = []*server.NkeyUser{{Nkey: *nkey}}
	}
	if *cert != "" {
		tlsConfig, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: *cert, KeyFile: *key})
		if err != nil {
			return nil, err
		}
		opts.TLS, opts.TLSConfig, opts.TLSTimeout = true, tlsConfig, float64(server.TLS_TIMEOUT)/float64(time.Second)
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats on %s: %w", *listen, err)
	}
	logger, err := newNATSLog(*level)
	if err != nil {
		return nil, err
	}
	s.SetLoggerV2(logger, *level == "debug", false, false)
	go s.Start() // returns by itself; WaitForShutdown joins what it started
	stop := func() {
		s.Shutdown()
		s.WaitForShutdown()
	}
	if !s.ReadyForConnections(startLimit) {
		stop()
		return nil, fmt.Errorf("nats on %s was not ready within %s", *listen, startLimit)
	}
	scheme := "nats"
	if *cert != "" {
		scheme = "tls"
	}
	failed := make(chan error, 1)
	go func() {
		s.WaitForShutdown()
		failed <- errors.New("the server shut down")
	}()
	return &running{ready: ready{URL: scheme + "://" + s.Addr().String()}, failed: failed, stop: stop}, nil
}

// probe finds out whether the address can be had, because the server itself only logs it and goes on.
func probe(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// natsLog is the server's log on stderr, from a level up.
type natsLog struct{ level int }

func newNATSLog(level string) (*natsLog, error) {
	for i, name := range []string{"debug", "info", "warn", "error"} {
		if level == name {
			return &natsLog{level: i}, nil
		}
	}
	return nil, fmt.Errorf("--log-level %q is not debug, info, warn or error", level)
}

func (l *natsLog) print(level int, name, format string, args []any) {
	if level >= l.level {
		fmt.Fprintf(os.Stderr, "nats %s: %s\n", name, fmt.Sprintf(format, args...))
	}
}

func (l *natsLog) Tracef(string, ...any)              {}
func (l *natsLog) Debugf(format string, args ...any)  { l.print(0, "debug", format, args) }
func (l *natsLog) Noticef(format string, args ...any) { l.print(1, "info", format, args) }
func (l *natsLog) Warnf(format string, args ...any)   { l.print(2, "warn", format, args) }
func (l *natsLog) Errorf(format string, args ...any)  { l.print(3, "error", format, args) }

// Fatalf is called when the server cannot run at all; what it could not have is the address, nearly always.
func (l *natsLog) Fatalf(format string, args ...any) {
	l.print(3, "fatal", format, args)
	for _, a := range args {
		if err, ok := a.(error); ok && errors.Is(err, syscall.EADDRINUSE) {
			os.Exit(exitInUse)
		}
	}
	os.Exit(exitFailed)
}
