package cluster

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/loadgen"
	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/transport"
)

// maxEngines is how many engines one mockworker process takes.
const maxEngines = 1024

// Arms are the arms that a cluster run can compare.
func Arms() []string { return append(planeflags.Planes(), planeflags.ArmNames()...) }

// Config says what is run. It is passed by value; all fields count as they are, there are no defaults behind the flags.
type Config struct {
	Programs Programs
	Arms     []string // run alternately
	Runs     int      // of each arm

	Workers, Processes    int // engines in all, and the processes that share them
	Concurrency, Requests int
	Warmup                int // requests
	ISL, OSL              int // tokens
	TTFT, ITL             time.Duration
	Router                string
	SteadyAfter           time.Duration
	MaxErrorRate          float64 // share, 0 to 1

	// Holders is how many worker processes, the first ones, hold back half of their requests for HoldDelay; 0 to half
	// of Processes. A HoldDelay of 0 is made from ITL and TTFT.
	Holders   int
	HoldDelay time.Duration

	// Pin says which cores the processes are kept to: PinAuto, PinOff, or a list like "frontend:0-1 workers:2-5
	// loadgen:6-7 servers:2" (etcd and NATS go with the workers when servers is left out; what is not named is not
	// pinned).
	Pin string

	// PlaneArgs are transport settings, as flags, for frontend and workers; --response-plane and --bind-addr are not
	// among them.
	PlaneArgs []string
	// BindAddr is where the workers listen. A fixed port P gives process i the ports from P + i*ServerEndpoints on.
	BindAddr        string
	ServerEndpoints int
	// Netns gives every process a network namespace of its own, joined by a bridge at MTU 1500. The host of BindAddr is
	// then empty, or [::] for IPv6.
	Netns bool
	// Lanes is how many lanes a link has on a plane.
	Lanes func(plane string) int

	// EtcdEndpoints and NATSURL name servers that run already. Empty: each run starts its own.
	EtcdEndpoints []redact.URL
	NATSURL       redact.URL

	// Dir gets a directory for each run, named ARM-N.
	Dir string
	// Settings are all flags in force, for the report.
	Settings map[string]any

	// Progress gets lines that say what is going on, Log what goes wrong without ending the run. Nil discards.
	Progress io.Writer
	Log      *slog.Logger

	times times
	pins  pins // what Pin came to
}

// times bound what is waited for. Zero fields take the defaults; tests shorten them.
type times struct {
	start time.Duration // until all workers can be reached
	stop  time.Duration // from SIGTERM until a kill
}

func (c Config) withDefaults() Config {
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.times.start == 0 {
		c.times.start = 90 * time.Second // a machine that is busy with other things needs it
	}
	if c.times.stop == 0 {
		c.times.stop = 15 * time.Second
	}
	if c.Lanes == nil {
		c.Lanes = func(string) int { return 1 }
	}
	return c
}

// Validate joins everything that is wrong, except what the machine says (see preflight).
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if len(c.Arms) == 0 {
		bad("no arm is named: use --response-plane with some of %v", Arms())
	}
	for _, a := range c.Arms {
		if !slices.Contains(Arms(), a) {
			bad("--response-plane: the arm %q is not known: use some of %v", a, Arms())
		}
	}
	for _, v := range []struct {
		flag string
		n    int
	}{{"runs", c.Runs}, {"workers", c.Workers}, {"processes", c.Processes}, {"concurrency", c.Concurrency},
		{"request-count", c.Requests}, {"isl", c.ISL}, {"osl", c.OSL}} {
		if v.n < 1 {
			bad("--%s %d: use 1 or more", v.flag, v.n)
		}
	}
	if c.Processes > 0 && c.Workers < c.Processes {
		bad("--workers %d is less than --processes %d: each process needs a worker", c.Workers, c.Processes)
	}
	if c.Processes > 0 && (c.Workers+c.Processes-1)/c.Processes > maxEngines {
		bad("--workers %d in --processes %d: a process holds at most %d workers, use %d processes or more", c.Workers,
			c.Processes, maxEngines,
			(c.Workers+maxEngines-1)/maxEngines)
	}
	if _, err := c.bindAddr(max(c.Processes-1, 0)); err != nil {
		errs = append(errs, err)
	}
	_, err := parsePin(c.Pin)
	return errors.Join(append(errs, err, c.checkHolders(), c.checkNetns())...)
}

// engines is how many workers process i holds: as even as can be.
func (c Config) engines(i int) int {
	n := c.Workers / c.Processes
	if i < c.Workers%c.Processes {
		n++
	}
	return n
}

// workerProcs is GOMAXPROCS of a worker process: its share of the workers' cores, at least 1. The worker processes
// share the cores; with a scheduler of every core's size each, their idle threads spin and wake one another. One pair
// of runs, on a shared machine, had 11.0 against 9.4 ms of worker CPU a request (8 processes, 2 cores, all processes of
// the run changed); not repeated.
func (c Config) workerProcs() int {
	cores := len(c.pins[pinWorkers])
	if cores == 0 {
		cores = procstat.CPUs()
	}
	return max(1, cores/c.Processes)
}

// bindAddr is where worker process i listens.
func (c Config) bindAddr(i int) (string, error) {
	host, p, err := net.SplitHostPort(c.BindAddr)
	if err != nil {
		return "", fmt.Errorf("--bind-addr %s: %w", c.BindAddr, err)
	}
	port, err := strconv.Atoi(p)
	if err != nil {
		return "", fmt.Errorf("--bind-addr %s: the port is not a number", c.BindAddr)
	}
	if port == 0 {
		return c.BindAddr, nil
	}
	if !c.Netns { // each namespace has all ports
		port += i * c.ServerEndpoints
	}
	if last := port + c.ServerEndpoints - 1; last > 65535 {
		return "",
			fmt.Errorf("--bind-addr %s: %d processes with %d endpoints each end at port %d: use a lower port, or 0",
				c.BindAddr, c.Processes, c.ServerEndpoints, last)
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// spareFiles is what a process opens beside the sockets that are counted: its own files, scrapes, etcd, NATS.
const spareFiles = 256

// checkMachine tells early what would otherwise show as thousands of failed requests.
func (c Config) checkMachine() error {
	lanes := 0
	for _, a := range c.Arms {
		lanes = max(lanes, c.Lanes(a))
	}
	need := c.Concurrency + max(c.Processes*lanes, c.ServerEndpoints) + spareFiles
	network := c.checkPorts
	if c.Netns { // whose ports are all free
		network = netns.Check
	}
	_, _, pinErr := c.resolvePins()
	return errors.Join(pinErr, cli.NeedFiles(need, fmt.Sprintf("--concurrency %d", c.Concurrency)),
		loadgen.CheckPorts(c.Concurrency), network())
}

// checkPorts looks whether the fixed ports of --bind-addr are free.
func (c Config) checkPorts() error {
	if _, p, err := net.SplitHostPort(c.BindAddr); err != nil || p == "0" {
		return nil // Validate has the complaint, or the kernel chooses
	}
	for i := range c.Processes {
		addr, err := c.bindAddr(i)
		if err != nil {
			return err
		}
		host, p, _ := net.SplitHostPort(addr)
		first, _ := strconv.Atoi(p)
		for port := first; port < first+c.ServerEndpoints; port++ {
			for _, arm := range c.Arms {
				if err := free(arm, net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
					return fmt.Errorf("--bind-addr %s: worker process %d needs port %d, which is not free: use other "+
						"ports, or 0 for any: %w", c.BindAddr, i, port, err)
				}
			}
		}
	}
	return nil
}

func free(arm, addr string) error {
	if planeflags.Carrier(arm) == transport.PlaneQUIC {
		l, err := net.ListenPacket("udp", addr)
		if err != nil {
			return err
		}
		return l.Close()
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
