// Command devservers runs a real etcd or a real NATS server for a cluster on one machine and for the tests, so that
// neither needs anything but Go. It is no way to run them in production: nothing is synced to disk.
//
//	devservers etcd [flags]
//	devservers nats [flags]
//
// When the server takes clients, one line of JSON on stdout says where:
//
//	{"server":"etcd","pid":1234,"endpoints":["http://127.0.0.1:2379"]}
//	{"server":"nats","pid":1235,"url":"nats://127.0.0.1:4222"}
//
// It ends with exit code 0 on SIGTERM, SIGINT and SIGHUP, and when its standard input, if that is a pipe, is closed:
// whoever started it holds the other end, so nothing is left behind when that process dies, however it dies. SIGHUP
// says the same. Exit code 3 says that the address is in use, 1 any other failure.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitInUse  = 3
)

// ready is the line on stdout.
type ready struct {
	Server    string   `json:"server"`
	PID       int      `json:"pid"`
	Endpoints []string `json:"endpoints,omitempty"`
	URL       string   `json:"url,omitempty"`
}

// running is a server that takes clients. failed reports that it ended by itself; stop ends it and waits for it.
type running struct {
	ready  ready
	failed <-chan error
	stop   func()
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "devservers: say which server: etcd or nats (devservers --help)")
		return exitFailed
	}
	switch args[0] {
	case "-h", "-help", "--help", "help":
		return said(printHelp(os.Stdout))
	case "-version", "--version":
		return said(printVersion(os.Stdout))
	}
	// Signals first: one that comes while the server starts must not leave its files behind.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	// A log that nobody reads any more ends nothing: the parent has died then, and the files are to be removed.
	signal.Ignore(syscall.SIGPIPE)

	dirs := &dataDir{}
	defer dirs.remove()
	var (
		srv *running
		err error
	)
	switch args[0] {
	case "etcd":
		srv, err = startEtcd(args[1:], dirs)
	case "nats":
		srv, err = startNATS(args[1:])
	default:
		err = fmt.Errorf("unknown server %q, expected etcd or nats (devservers --help)", args[0])
	}
	if help, ok := errors.AsType[*helpError](err); ok {
		return said(help.print(os.Stdout))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "devservers: %v\n", err)
		if errors.Is(err, syscall.EADDRINUSE) {
			return exitInUse
		}
		return exitFailed
	}

	srv.ready.Server, srv.ready.PID = args[0], os.Getpid()
	if err := json.NewEncoder(os.Stdout).Encode(srv.ready); err != nil {
		srv.stop()
		return exitFailed // nobody is listening any more
	}
	code := exitOK
	select {
	case sig := <-signals:
		// A process group that loses its last parent while it is stopped gets SIGHUP from the kernel, and this may be
		// seen before the end of standard input.
		if sig == syscall.SIGHUP {
			dirs.orphaned()
		}
	case <-orphaned():
		dirs.orphaned()
	case err := <-srv.failed:
		fmt.Fprintf(os.Stderr, "devservers: %s ended by itself: %v\n", args[0], err)
		code = exitFailed
	}
	srv.stop()
	return code
}

// orphaned is closed when standard input ends, provided that it is a pipe. A terminal or /dev/null says nothing about a
// parent.
func orphaned() <-chan struct{} {
	ch := make(chan struct{})
	if st, err := os.Stdin.Stat(); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		return ch
	}
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ch)
	}()
	return ch
}

// dataDir is what has to be removed at the end: a directory that was made here, or the parent's when the parent has
// gone.
type dataDir struct {
	path       string
	own        bool
	ifOrphaned bool
}

func (d *dataDir) orphaned() {
	if d.ifOrphaned {
		d.own = true
	}
}

func (d *dataDir) remove() {
	if d.own && d.path != "" {
		_ = os.RemoveAll(d.path)
	}
}
