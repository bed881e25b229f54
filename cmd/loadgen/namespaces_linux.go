package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

const (
	controlPort   = "7000"           // in a namespace of its own every port is free
	serverTimeout = 20 * time.Second // until the server listens
	sideGrace     = 10 * time.Second // to end when told to
)

// inNamespaces runs the command again in two network namespaces, once as the server and once as the client, and is the
// client's exit code.
func (f *sideFlags) inNamespaces(ctx context.Context, log *slog.Logger) (err error) {
	stale, err := netns.RemoveStale(ctx)
	if err != nil {
		return fmt.Errorf("--netns: %w", err)
	}
	if len(stale) > 0 {
		log.Info("removed network namespaces that a run had left behind", "namespaces", len(stale))
	}
	n, err := netns.Make(ctx, netns.Config{Nodes: []string{"server", "client"}})
	if err != nil {
		return fmt.Errorf("--netns: %w", err)
	}
	defer func() { err = errors.Join(err, n.Close()) }() // after the sides, which are in there
	at := net.JoinHostPort(n.Node("server").Addr4.String(), controlPort)
	// that it waits, and stops, is nobody's news
	server, err := f.startSide(n.Node("server"), io.Discard, "--listen="+at, "--log-level=warn")
	if err != nil {
		return err
	}
	defer server.stop()
	if err := server.listens(ctx, n.Hub(), at); err != nil {
		return err
	}
	client, err := f.startSide(n.Node("client"), f.app.Stdout, "--connect="+at)
	if err != nil {
		return err
	}
	defer client.stop()
	select {
	case <-client.Done():
		return client.exit()
	case <-server.Done():
		return fmt.Errorf("--netns: the server has ended (%s)", server.State())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// side is this program, started again in a namespace.
type side struct{ *childproc.Child }

// startSide starts one with the flags of this process and more, which take their place. Its log goes where this one's
// does.
func (f *sideFlags) startSide(in *netns.Node, stdout io.Writer, more ...string) (*side, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{f.command}, more...)
	for name, value := range f.app.Values() {
		own := name == netnsFlag ||
			slices.ContainsFunc(more, func(m string) bool { return strings.HasPrefix(m, "--"+name+"=") })
		if !own && f.app.Source(name) != cli.FromDefault {
			args = append(args, "--"+name+"="+value)
		}
	}
	c, err := childproc.Start(childproc.Spec{
		Name: f.command, Path: exe, Args: args, Env: cli.WithoutSettings(os.Environ()), Stdout: stdout,
		Stderr: f.app.Stderr,
		Around: func(start func() error) (bool, error) { return true, in.Do(start) },
	})
	if err != nil {
		return nil, fmt.Errorf("--netns: %w", err)
	}
	return &side{c}, nil
}

// listens waits until the server takes connections.
func (s *side) listens(ctx context.Context, from *netns.Node, at string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverTimeout,
		fmt.Errorf("--netns: the server does not listen on %s after %s", at, serverTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := from.Dial(ctx, "tcp", at); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-s.Done():
			return fmt.Errorf("--netns: the server has ended (%s)", s.State())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// exit is the exit code of a side that has ended, which has said itself what was wrong.
func (s *side) exit() error {
	if s.Err() == nil {
		return nil
	}
	return &cli.ExitError{Code: max(s.ExitCode(), cli.ExitFailure),
		Err: fmt.Errorf("--netns: the client has ended with %s", s.State())}
}

// stop ends it and joins it.
func (s *side) stop() { _ = s.End(context.Background(), s.Terminate, sideGrace) } // it has said itself what was wrong
