package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// session is everything that one run has started. It belongs to one goroutine; only fail is called by others.
type session struct {
	cfg  Config
	name string // ARM-N
	arm  string
	dir  string // of the run
	logs string
	env  []string // of the children

	ctx  context.Context // ends when the caller's does, and when a child dies
	fail context.CancelCauseFunc

	namespace string
	etcdURLs  []string
	natsURL   string
	servers   []*server
	workers   []*child
	frontend  *child
	loadgen   *child

	net      *netns.Network // nil without --netns
	forwards []*netns.Forwarder

	frontendHTTP, frontendAdmin string
	workerAdmins                []string
}

// server is a child that devserver runs.
type server struct {
	*devserver.Server
	role string
	log  *os.File
	stop chan struct{} // closed when its end is wanted
	wg   sync.WaitGroup
}

// open makes the directories of a run. close must be called.
func (c Config) open(ctx context.Context, arm, name string) (*session, error) {
	dir, err := filepath.Abs(filepath.Join(c.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("--artifact-dir: %w", err)
	}
	s := &session{cfg: c, name: name, arm: arm, dir: dir, logs: filepath.Join(dir, "logs"),
		env: cli.WithoutSettings(os.Environ()), natsURL: c.NATSURL.Whole(), etcdURLs: redact.Wholes(c.EtcdEndpoints)}
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return nil, fmt.Errorf("--artifact-dir: %w", err)
	}
	if s.namespace, err = newNamespace(); err != nil {
		return nil, err
	}
	s.ctx, s.fail = context.WithCancelCause(ctx)
	return s, nil
}

func (s *session) say(format string, a ...any) {
	fmt.Fprintf(s.cfg.Progress, "%s: %s\n", s.name, fmt.Sprintf(format, a...))
}

// died is what a child's goroutine calls when the child has ended by itself.
func (s *session) died(err *DiedError) { s.fail(err) }

func (s *session) spec(name, path string, args ...string) spec {
	return spec{name: name, path: path, args: args, env: s.env, log: filepath.Join(s.logs, name+".log"), died: s.died,
		in: s.node(name)}
}

// startServers starts those of etcd and NATS that the user did not name.
func (s *session) startServers() error {
	if len(s.etcdURLs) == 0 {
		srv, err := s.startServer("etcd", devserver.StartEtcd)
		if err != nil {
			return err
		}
		s.etcdURLs = srv.Endpoints()
	}
	if s.natsURL == "" {
		srv, err := s.startServer("nats", devserver.StartNATS)
		if err != nil {
			return err
		}
		s.natsURL = srv.URL()
	}
	return nil
}

func (s *session) startServer(role string, start func(context.Context, devserver.Options) (*devserver.Server,
	error)) (*server, error) {
	log, err := os.OpenFile(filepath.Join(s.logs, role+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: log file: %w", role, err)
	}
	one, err := start(s.ctx, devserver.Options{Binary: s.cfg.Programs.Servers, LogLevel: "warn", Stderr: log})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	srv := &server{Server: one, role: role, log: log, stop: make(chan struct{})}
	s.servers = append(s.servers, srv)
	srv.wg.Go(func() { // ends with the server, or when its end is wanted; joined by shut
		select {
		case <-srv.stop:
		case <-srv.Done():
			s.died(&DiedError{Name: role, State: "its process is gone", Last: tail(log.Name(), tailLines),
				Log: log.Name()})
		}
	})
	if cores := s.cfg.pins.servers(); len(cores) > 0 {
		if err := pinProcess(one.PID(), cores); err != nil {
			return nil, fmt.Errorf("%s cannot be pinned to the cores %s: %w", role, cores, err)
		}
	}
	return srv, nil
}

// shut stops a server and joins what belongs to it.
func (v *server) shut() error {
	close(v.stop)
	v.wg.Wait()
	err := v.Stop(context.Background()) // bounds itself
	return errors.Join(err, v.log.Close())
}

// discoveryEnv leads a program to NATS: its URL may hold a password, and arguments are in every list of processes.
func (s *session) discoveryEnv() []string {
	return append(slices.Clone(s.env), cli.EnvName("nats-url")+"="+s.natsURL)
}

// discoveryArgs are the flags that lead a program to etcd.
func (s *session) discoveryArgs() []string {
	return []string{"--namespace=" + s.namespace, "--etcd-endpoints=" + strings.Join(s.etcdURLs, ","),
		"--response-plane=" + s.arm}
}

// stopDrain is how long frontend and workers may wait for open responses. When they are told to stop the load has
// ended, so nobody reads what is still open.
const stopDrain = 5 * time.Second

// workerName is the name of a worker process.
func workerName(i int) string { return fmt.Sprintf("worker-%d", i) }

func (s *session) startWorkers() error {
	s.workers, s.workerAdmins = make([]*child, s.cfg.Processes), make([]string, s.cfg.Processes)
	for i := range s.workers {
		bind, err := s.workerBind(i)
		if err != nil {
			return err
		}
		name := workerName(i)
		args := append(s.discoveryArgs(), "--name="+name, "--worker-id-prefix="+name, fmt.Sprintf("--num-workers=%d",
			s.cfg.engines(i)),
			// Consecutive seeds spread the passes of the processes best.
			fmt.Sprintf("--seed=%d", i+1), "--admin-addr="+s.address(name), "--bind-addr="+bind,
			fmt.Sprintf("--output-tokens=%d", s.cfg.OSL), "--time-to-first-token="+s.cfg.TTFT.String(),
			"--inter-token-latency="+s.cfg.ITL.String(),
			"--drain-grace=0s", "--drain-timeout="+stopDrain.String())
		args = append(args, s.cfg.holdArgs(i)...)
		sp := s.spec(name, s.cfg.Programs.Worker, append(args, s.cfg.PlaneArgs...)...)
		sp.cores = s.cfg.pins[pinWorkers]
		sp.env = append(s.discoveryEnv(), fmt.Sprintf("GOMAXPROCS=%d", s.cfg.workerProcs()))
		if s.workers[i], err = start(sp); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) startFrontend() (err error) {
	at := s.address(nodeFrontend)
	args := append(s.discoveryArgs(), "--name=frontend", "--http-addr="+at, "--admin-addr="+at, "--router="+
		s.cfg.Router,
		"--drain-grace=0s", "--drain-timeout="+stopDrain.String())
	sp := s.spec(nodeFrontend, s.cfg.Programs.Frontend, append(args, s.cfg.PlaneArgs...)...)
	sp.cores = s.cfg.pins[pinFrontend]
	sp.env = s.discoveryEnv()
	s.frontend, err = start(sp)
	return err
}

// startLoadgen starts the load. Its status lines go to the user too.
func (s *session) startLoadgen(info string) (err error) {
	c := s.cfg
	args := []string{"--url=http://" + s.frontendHTTP, "--model=mock", fmt.Sprintf("--concurrency=%d", c.Concurrency),
		fmt.Sprintf("--request-count=%d", c.Requests),
		fmt.Sprintf("--warmup-request-count=%d", c.Warmup), fmt.Sprintf("--isl=%d", c.ISL),
		fmt.Sprintf("--osl=%d", c.OSL), "--steady-after=" + c.SteadyAfter.String(),
		fmt.Sprintf("--max-error-rate=%v", c.MaxErrorRate), "--label=" + s.name, "--artifact-dir=" + s.dir,
		"--run-info=" + info,
		"--metrics-url=http://" + s.frontendAdmin + "/metrics"}
	for _, a := range s.workerAdmins {
		args = append(args, "--metrics-url=http://"+a+"/metrics")
	}
	sp := s.spec(nodeLoadgen, c.Programs.Loadgen, args...)
	sp.cores = s.cfg.pins[pinLoadgen]
	sp.died = nil // its end is the end of the run
	sp.also = &childproc.Tail{To: c.Progress, Prefix: s.name + ": "}
	s.loadgen, err = start(sp)
	return err
}

// close stops everything in order: the load, the frontend, the workers, the network, the servers; so nobody loses a
// peer that it still uses. It joins all of it and returns what did not stop as it should.
func (s *session) close() error {
	var errs []error
	if c := s.loadgen; c != nil {
		if err := c.stop(s.cfg.times.stop); c.Killed() {
			errs = append(errs, err) // otherwise it only says that its run was cut short
		}
	}
	if s.frontend != nil {
		errs = append(errs, s.frontend.stop(s.cfg.times.stop))
	}
	var wg sync.WaitGroup
	stopped := make([]error, len(s.workers))
	for i, c := range s.workers {
		if c != nil {
			wg.Go(func() { stopped[i] = c.stop(s.cfg.times.stop) }) // ends within the time and a kill
		}
	}
	wg.Wait()
	errs = append(errs, stopped...)
	errs = append(errs, s.closeNetwork())
	for _, v := range s.servers {
		errs = append(errs, v.shut())
	}
	s.fail(nil)
	return errors.Join(errs...)
}
