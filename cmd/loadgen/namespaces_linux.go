package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/laneway-ai/laneway/internal/cli"
	"github.com/laneway-ai/laneway/internal/netns"
)

const (
	controlPort   = "7000"           // in a namespace of its own every port is free
	serverTimeout = 20 * time.Second // until the server listens
	sideGrace     = 10 * time.Second // to end when told to
)

// inNamespaces runs the command again in two network namespaces, once as the server and once as the client, and is the client's exit code.
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
	server, err := f.startSide(n.Node("server"), io.Discard, "--listen="+at, "--log-level=warn") // that it waits, and stops, is nobody's news
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
	case <-client.done:
		return client.exit()
	case <-server.done:
		return fmt.Errorf("--netns: the server has ended (%s)", server.cmd.ProcessState)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// side is this program, started again in a namespace.
type side struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been waited for
}

// startSide starts one with the flags of this process and more, which take their place. Its log goes where this one's does.
func (f *sideFlags) startSide(in *netns.Node, stdout io.Writer, more ...string) (*side, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append([]string{f.command}, more...)
	for name, value := range f.app.Values() {
		own := name == netnsFlag || slices.ContainsFunc(more, func(m string) bool { return strings.HasPrefix(m, "--"+name+"=") })
		if !own && f.app.Source(name) != cli.FromDefault {
			args = append(args, "--"+name+"="+value)
		}
	}
	s := &side{cmd: exec.Command(exe, args...), done: make(chan struct{})}
	s.cmd.Env = cli.WithoutSettings(os.Environ())
	s.cmd.Stdout, s.cmd.Stderr = stdout, f.app.Stderr
	s.cmd.WaitDelay = time.Second
	// A group of its own: Ctrl-C is this process's business. And no side outlives a parent that was killed, whose namespaces the next run then removes.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // ends with the process; stop joins it
		defer close(s.done)
		runtime.LockOSThread() // the kernel takes the thread that started a child for its parent
		defer runtime.UnlockOSThread()
		err := in.Do(s.cmd.Start)
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // ProcessState says it
		}
	}()
	if err := <-started; err != nil {
		<-s.done
		return nil, fmt.Errorf("--netns: %w", err)
	}
	return s, nil
}

// listens waits until the server takes connections.
func (s *side) listens(ctx context.Context, from *netns.Node, at string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, serverTimeout, fmt.Errorf("--netns: the server does not listen on %s after %s", at, serverTimeout))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := from.Dial(ctx, "tcp", at); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-s.done:
			return fmt.Errorf("--netns: the server has ended (%s)", s.cmd.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// exit is the exit code of a side that has ended, which has said itself what was wrong.
func (s *side) exit() error {
	if s.cmd.ProcessState.Success() {
		return nil
	}
	return &cli.ExitError{Code: max(s.cmd.ProcessState.ExitCode(), cli.ExitFailure), Err: fmt.Errorf("--netns: the client has ended with %s", s.cmd.ProcessState)}
}

// stop ends it and joins it.
func (s *side) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.done:
	case <-time.After(sideGrace):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}
