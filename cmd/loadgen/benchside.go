package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/lab/streambench"
	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// sideFlags say where the two sides of `loadgen transport` and `loadgen streams` are, and what is common to both
// commands.
type sideFlags struct {
	app                *cli.App
	command            string
	listen, connect    *string
	runs               *int
	netns, quick, json *bool
	dir                *string
}

const netnsFlag = "netns"

// Of a --quick measurement.
const (
	quickRuns  = 1
	quickShare = 20 // the counts are divided by it
)

func declareSide(parent *cli.App, command, summary string) *sideFlags {
	app := parent.Command(command, summary)
	f := &sideFlags{app: app, command: command}
	g := app.Group("Sides")
	f.listen = g.Address("listen", "", "HOST:PORT",
		"be the server of a client on another host, or in another process, and end with a signal; the ports that are "+
			"measured are the kernel's choice, and nothing on them asks who comes", hostPort)
	f.connect = g.Address("connect", "", "HOST:PORT",
		"measure against a server that was started with --listen; empty = both sides are in this "+
			"process, over loopback",
		hostPort)
	f.netns = g.Bool(netnsFlag, false,
		"start both sides, each in a network namespace of its own, joined by a bridge at MTU 1500: as on two hosts, "+
			"by one command (Linux, root)")
	g = app.Group("Repetitions")
	f.runs = g.Int("runs", 3, cli.Range(1, 1000),
		"repetitions of each cell, interleaved; the first is named in each cell, since it is often the low one")
	f.quick = g.Bool("quick", false,
		fmt.Sprintf("%d repetition and 1/%d of the counts: whether it works, not how fast it is", quickRuns,
			quickShare))
	f.json = g.Bool("json", false, "write the report as JSON, with the value of each repetition, to standard output")
	f.dir = g.String("artifact-dir", "", "folder for run.json, the same report, and "+benchtable.File+
		"; empty = none is written")
	app.Check(f.check)
	return f
}

func hostPort(s string) error {
	if s == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		return errors.New("is not an address: write HOST:PORT")
	}
	return nil
}

func (f *sideFlags) check() error {
	if *f.listen != "" && *f.connect != "" {
		return fmt.Errorf("--listen %s with --connect %s: a process is one side", *f.listen, *f.connect)
	}
	if *f.netns && *f.listen+*f.connect != "" {
		return fmt.Errorf("--netns with --listen %q or --connect %q: it starts both sides itself", *f.listen,
			*f.connect)
	}
	if *f.quick && f.app.Source("runs") != cli.FromDefault {
		return fmt.Errorf("--quick with --runs %d: --quick makes %d repetition", *f.runs, quickRuns)
	}
	return nil
}

// count is a count of the reference: of one host or of two, less with --quick.
func (f *sideFlags) count(flag string, given, oneHost, twoHosts, least int) int {
	n := given
	if n == 0 {
		if n = oneHost; *f.connect != "" {
			n = twoHosts
		}
	}
	if *f.quick && f.app.Source(flag) == cli.FromDefault {
		n = max(n/quickShare, least)
	}
	return n
}

func (f *sideFlags) repetitions() int {
	if *f.quick {
		return quickRuns
	}
	return *f.runs
}

// loopback is where the server listens when both sides are on this host.
const loopback = "127.0.0.1:0"

// run is the server, or calls measure with the address of one, or has two other processes do so.
func (f *sideFlags) run(ctx context.Context, log *slog.Logger, create func(host string) transportbench.Handler,
	measure func(ctx context.Context, at string) error) (err error) {
	if *f.netns {
		return f.inNamespaces(ctx, log)
	}
	at := *f.connect
	if at == "" {
		listen := *f.listen
		if listen == "" {
			listen = loopback
		}
		s, err := transportbench.StartServer(ctx, listen, log, create)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if at = s.Addr(); *f.listen != "" {
			log.Info("waiting for clients; stop with a signal", "listen", at)
			<-ctx.Done()
			return nil
		}
	}
	return measure(ctx, at)
}

// show writes a report.
func (f *sideFlags) show(r *transportbench.Report, head string) error {
	r.Remote = *f.connect != ""
	if *f.dir != "" {
		if err := planebench.WriteReport(*f.dir, r); err != nil {
			return err
		}
	}
	if *f.json {
		enc := json.NewEncoder(f.app.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	if _, err := fmt.Fprintf(f.app.Stdout, "%s, %d repetitions, %d cores\n\n", head, r.Runs, r.Cores); err != nil {
		return err
	}
	return benchtable.Print(f.app.Stdout, r.Shown()...)
}

// outcome turns an error of a measurement into an exit code: a message or an item that was lost or came wrong is a bad
// run.
func outcome(err error) error {
	_, count := errors.AsType[*transportbench.WrongCountError](err)
	_, item := errors.AsType[*streambench.WrongItemError](err)
	if count || item {
		return &cli.ExitError{Code: cli.ExitBadRun, Err: err}
	}
	return err
}
