package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/analysis"
	"github.com/laneway-ai/laneway/internal/lab/cluster"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/discoveryflags"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

type flags struct {
	app   *cli.App
	plane *planeflags.Flags

	runs, workers, processes, concurrency, requests, warmup, isl, osl *int
	ttft, itl, steadyAfter                                            *time.Duration
	maxErrorRate                                                      *float64
	netns                                                             *bool
	holders                                                           *int
	holdDelay                                                         *time.Duration
	pin                                                               *string
	allow                                                             *[]string
	router, dir, binDir                                               *string
	natsURL                                                           *redact.URL
	etcd                                                              *[]redact.URL
}

func declare(app *cli.App) *flags {
	f := &flags{app: app}
	g := app.Group("Runs")
	f.runs = g.Int("runs", 1, cli.Range(1, 1000), "runs of each arm; the arms take turns, each run has fresh processes")
	f.dir = g.String("artifact-dir", "runs/",
		"gets a directory for each run, ARM-N; numbers go on from the runs that are there")
	f.binDir = g.String("bin-dir", "",
		"directory with frontend, mockworker, loadgen and devservers; empty = built from this checkout into the "+
			"user's cache")

	g = app.Group("Cluster")
	f.workers = g.Int("workers", 512, cli.Range(1, 1<<20), "mock workers in all")
	f.processes = g.Int("processes", 8, cli.Range(1, 1024), "processes that the workers share")
	f.router = g.Enum("router", string(responseplane.RouterLeastLoaded),
		[]string{string(responseplane.RouterLeastLoaded), string(responseplane.RouterRoundRobin),
			string(responseplane.RouterRandom)}, "how the frontend chooses the worker of a request")
	f.ttft = g.Duration("time-to-first-token", 20*time.Millisecond, cli.Range(0, time.Hour),
		"prefill of the mock engines")
	f.itl = g.Duration("inter-token-latency", 200*time.Millisecond, cli.Range(time.Millisecond, time.Hour),
		"interval of the mock engines' passes; the default keeps 2 cores under 90% busy")
	f.holders = g.Int("holders", 0, cli.Range(0, 512).Unit("processes"),
		"how many of the worker processes, the first ones, hold half of their requests back for --hold-delay, so "+
			"that runs can be made "+
			"at a chosen number of holders; at most half of --processes")
	f.holdDelay = g.Duration("hold-delay", 0,
		cli.Range(0,
			time.Hour).OrZero("4 x the larger of 3 inter-token latencies and 2 x (--time-to-first-token + "+
			"--inter-token-latency), at least 1s"),
		"how long a holder holds a request; half of it is what its mean time to first response grows by, twice what "+
			"a holder needs")
	f.pin = g.Checked("pin", cluster.PinAuto, "auto|off|LIST",
		"which cores the processes are kept to. auto gives frontend, workers (with etcd and NATS) and load generator "+
			"cores of their own where there are 6 or more; "+
			`a list names them: "frontend:0-1 workers:2-5 loadgen:6-7", and servers:CORES for etcd and NATS (Linux)`,
		nil)
	f.netns = g.Bool("netns", false,
		"each process in a network namespace of its own, joined by a bridge at MTU 1500, so that UDP counters are "+
			"one process's own (Linux, root)")
	f.etcd = g.URLs("etcd-endpoints", nil, "etcd that runs already; empty = each run starts its own")
	f.natsURL = g.URL("nats-url", "", "URL", "NATS that runs already; empty = each run starts its own",
		discoveryflags.CheckNATS)

	g = app.Group("Load")
	f.concurrency = g.Int("concurrency", 8192, cli.Range(1, 1_000_000).Unit("requests"), "open requests (closed loop)")
	app.Alias("c", "concurrency")
	f.requests = g.Int("request-count", 12288, cli.Range(1, 1_000_000_000), "measured requests of each run")
	app.Alias("n", "request-count")
	f.warmup = g.Int("warmup-request-count", -1, cli.Range(-1, 1_000_000),
		"requests before the measured ones, of lengths spread over 1..osl, which they follow without a pause; -1 = "+
			"as --concurrency")
	f.isl = g.Int("isl", 1024, cli.Range(1, 1_000_000).Unit("tokens"), "input length")
	f.osl = g.Int("osl", 256, cli.Range(1, 1_000_000).Unit("tokens"), "output length")

	g = app.Group("Judgement")
	f.steadyAfter = g.Duration("steady-after", 10*time.Second, cli.Any(),
		"the steady window begins so long after the first measured request")
	f.maxErrorRate = g.Float("max-error-rate", 0, cli.Range(0.0, 1.0),
		"exit 2 when a larger share of a run's requests fails")

	f.allow = g.EnumList("allow", nil, analysis.Allowable(),
		"marks that do not set a run aside in the analysis after the runs")

	f.plane = planeflags.Register(app, planeflags.Options{
		Planes: []string{transport.PlaneTCP, transport.PlaneQUIC}, PlaneUsage: "arms, one plane each, which take turns",
		Arms: planeflags.ArmsAmong,
	})
	app.Check(func() error { return f.config().Validate() })
	app.Check(func() error { return discoveryflags.CheckEndpoints(*f.etcd) })
	return f
}

// loopback is where workers listen unless the user says otherwise: a cluster on one machine is nobody else's business.
const loopback = "127.0.0.1:0"

// anywhere is the same for workers that have a namespace each, which nobody else is in.
const anywhere = ":0"

// config is what the flags ask for.
func (f *flags) config() cluster.Config {
	plane := f.plane.Settings()
	c := cluster.Config{
		Arms: plane.Planes, Runs: *f.runs,
		Workers: *f.workers, Processes: *f.processes, Concurrency: *f.concurrency, Requests: *f.requests,
		Warmup: *f.warmup, ISL: *f.isl, OSL: *f.osl,
		TTFT: *f.ttft, ITL: *f.itl, Router: *f.router, SteadyAfter: *f.steadyAfter, MaxErrorRate: *f.maxErrorRate,
		Holders: *f.holders, HoldDelay: *f.holdDelay, Pin: *f.pin,
		BindAddr: loopback, Netns: *f.netns, ServerEndpoints: plane.ServerEndpoints,
		Lanes: func(p string) int {
			if slices.Contains(planeflags.ArmNames(), p) {
				return 1
			}
			if n := plane.PlaneLanes()[p]; n > 0 {
				return n
			}
			return plane.Lanes
		},
		EtcdEndpoints: *f.etcd, NATSURL: *f.natsURL, Dir: *f.dir, Settings: f.app.Config(),
	}
	if c.Warmup < 0 {
		c.Warmup = c.Concurrency
	}
	if c.Netns {
		c.BindAddr = anywhere
	}
	if f.app.Source("bind-addr") != cli.FromDefault {
		c.BindAddr = plane.BindAddr
	}
	for _, arg := range f.plane.Args() {
		if !strings.HasPrefix(arg, "--bind-addr=") { // each process gets its own
			c.PlaneArgs = append(c.PlaneArgs, arg)
		}
	}
	c.Settings["bind_addr"] = c.BindAddr
	// What these say is about this program, or the load generator has its own.
	for _, k := range []string{"allow", "artifact_dir", "log_format", "log_level"} {
		delete(c.Settings, k)
	}
	return c
}

// programs finds or builds what the runs start.
func (f *flags) programs(ctx context.Context, say func(string)) (cluster.Programs, error) {
	servers := len(*f.etcd) == 0 || f.natsURL.Empty()
	if *f.binDir != "" {
		return cluster.FindPrograms(*f.binDir, servers)
	}
	return cluster.BuildPrograms(ctx, servers, say)
}
