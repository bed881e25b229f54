package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) { // help has been printed
		fmt.Fprintln(os.Stderr, "plugin:", err)
		os.Exit(1)
	}
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, strings.TrimSuffix(s, "/")); return nil }

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say which side: worker or frontend")
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	addr := f.String("http", "127.0.0.1:0", "where the HTTP server listens")
	switch args[0] {
	case "worker":
		pace := f.Duration("pace", 50*time.Millisecond, "time between two passes of the engine")
		if err := parse(f, args[1:]); err != nil {
			return err
		}
		return runWorker(ctx, *addr, *pace)
	case "frontend":
		var workers list
		f.Var(&workers, "worker", "URL of a worker; may be repeated")
		open := f.Bool("open", false, "send requests with open terms")
		if err := parse(f, args[1:]); err != nil {
			return err
		}
		if len(workers) == 0 {
			return errors.New("--worker is missing: name at least one, such as --worker http://127.0.0.1:9001")
		}
		return runFrontend(ctx, *addr, workers, *open)
	}
	return fmt.Errorf("%q is no side: use worker or frontend", args[0])
}

// parse refuses what package flag would leave unread: it stops at the first word that is no flag.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is not understood: only flags are taken", f.Arg(0))
	}
	return nil
}

// startLimit is how long the frontend waits for its workers when it starts.
const startLimit = 30 * time.Second

// planes are the transports of this process, in order of preference: QUIC, and TLS where UDP does not get through.
func planes(id *transport.Identity) ([]transport.Transport, error) {
	q, err := quic.New(quic.Config{Identity: id})
	if err != nil {
		return nil, err
	}
	t, err := tcp.New(tcp.Config{Identity: id, TLS: true})
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return []transport.Transport{q, t}, nil
}

func closeAll(ts []transport.Transport) {
	for _, t := range ts {
		_ = t.Close()
	}
}

func runWorker(ctx context.Context, addr string, pace time.Duration) error {
	id, err := transport.NewIdentity() // a new one for each life of the process
	if err != nil {
		return err
	}
	ts, err := planes(id)
	if err != nil {
		return err
	}
	defer closeAll(ts)
	plane, err := responseplane.NewWorker(responseplane.WorkerConfig{Identity: id, Name: "worker " + addr,
		Transports: ts, Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer plane.Close()
	if err := plane.Listen(ctx); err != nil {
		return err
	}
	s := newWorkerServer(plane, pace)
	defer s.Close()
	return serve(ctx, addr, s.handler())
}

func runFrontend(ctx context.Context, addr string, workers []string, open bool) error {
	id, err := transport.NewIdentity()
	if err != nil {
		return err
	}
	ts, err := planes(id)
	if err != nil {
		return err
	}
	defer closeAll(ts)
	plane, err := responseplane.NewFrontend(responseplane.FrontendConfig{Identity: id, Name: "frontend " + addr,
		Transports: ts, Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer plane.Close()
	s := &frontendServer{plane: plane, client: &http.Client{Timeout: 30 * time.Second}, open: open}
	defer s.client.CloseIdleConnections()
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.discover(starting, workers); err != nil {
		return err
	}
	return serve(ctx, addr, s.handler())
}

// serve runs an HTTP server until ctx ends.
func serve(ctx context.Context, addr string, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	slog.Info("ready", "http", "http://"+l.Addr().String())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = server.Shutdown(ending)
	<-failed
	return err
}
