package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/discoveryflags"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/tracing"
)

// flags are the declared flags.
type flags struct {
	app   *cli.App
	plane *planeflags.Flags
	disco *discoveryflags.Flags
	trace *tracing.Flags

	name, workerPrefix, model, adminAddr *string
	adminPprof                           *bool
	numWorkers                           *int

	outputTokens, maxNumSeqs, maxWaiting, tokenBytes, seed *int
	ttft, ttftStdDev, itl, itlStdDev                       *time.Duration
	speedup                                                *float64

	failureRate  *float64
	failureTypes *[]string
	holdShare    *float64
	holdDelay    *time.Duration

	startup, grace, drain *time.Duration
}

func declare(app *cli.App) *flags {
	f := &flags{app: app}

	g := app.Group("Process")
	f.name = g.String("name", "", "name of this process in reports and metrics; HOST-PID when empty")
	f.numWorkers = g.Int("num-workers", 64, cli.Range(1, 1024).Unit("engines"),
		"engines in this process, each a worker of its own")
	f.workerPrefix = g.Checked("worker-id-prefix", "", "PREFIX",
		"worker ids are PREFIX-0, PREFIX-1, ...; made from --name when empty", validPrefix)
	f.adminAddr = g.Addr("admin-addr", ":0",
		"where /metrics, /livez, /readyz, /debug/plane and, for clients on this host, /debug/pprof/ are; port 0 lets "+
			"the kernel choose, the log says which")
	f.adminPprof = admin.DeclareProfiles(g)
	f.startup = g.Duration("startup-duration", 0, cli.Range(0, time.Hour),
		"how long the engines load before they register")
	f.grace = g.Duration("drain-grace", 5*time.Second, cli.Range(0, 10*time.Minute),
		"on SIGTERM and SIGHUP: how long requests are still taken after the workers left the registry, since "+
			"frontends hear of it late")
	f.drain = g.Duration("drain-timeout", 30*time.Second, cli.Range(0, time.Hour),
		"on SIGTERM and SIGHUP, after the grace: how long open responses may take to end")

	f.disco = discoveryflags.Register(app, discoveryflags.Options{Worker: true})
	f.trace = tracing.Register(app)

	g = app.Group("Engine")
	f.model = g.Checked("model", "mock", "NAME", "the model that all engines serve", func(s string) error {
		if s == "" || len(s) > 256 {
			return errors.New("is not a model name: use 1 to 256 bytes")
		}
		return nil
	})
	f.outputTokens = g.Int("output-tokens", mock.DefaultOutputTokens, cli.Range(1, mock.MaxOutputTokens).Unit("tokens"),
		"length of a response to a request that names none")
	f.tokenBytes = g.Int("token-bytes", 0, cli.Range(4, 4096).OrZero("4 to 8 bytes, by token").Unit("bytes"),
		"size of a token's text")
	f.ttft = g.Duration("time-to-first-token", mock.DefaultTimeToFirstToken, cli.Range(0, time.Hour),
		"mean time of a prefill; the first token leaves after it")
	f.ttftStdDev = g.Duration("time-to-first-token-std-dev", 0, cli.Range(0, time.Hour),
		"standard deviation of it; a draw stays within 70% of the mean")
	f.itl = g.Duration("inter-token-latency", mock.DefaultInterTokenLatency, cli.Range(mock.MinInterTokenLatency,
		time.Hour), "mean interval of an engine's passes; each makes one token on every running request")
	f.itlStdDev = g.Duration("inter-token-latency-std-dev", 0, cli.Range(0, time.Hour),
		"standard deviation of it, drawn for each pass; a draw stays within 70% of the mean")
	f.speedup = g.Float("speedup-ratio", 1, cli.Range(1e-3, 1e4), "divides the four times above")
	f.maxNumSeqs = g.Int("max-num-seqs", mock.DefaultMaxNumSeqs, cli.Range(1, 1<<16).Unit("requests"),
		"requests that an engine runs at once")
	f.maxWaiting = g.Int("max-waiting-queue-length", mock.DefaultMaxWaitingQueueLength,
		cli.Range(0, 1<<20).Unit("requests"), "requests that wait for an engine; the next one is refused as busy")
	f.seed = g.Int("seed", 0, cli.Range(0, 1<<53).OrZero("made from --name"),
		"draws times and failures, and places this process's passes between those of others; consecutive seeds "+
			"spread best")

	g = app.Group("Failures on purpose")
	f.failureRate = g.Float("failure-injection-rate", 0, cli.Range(0.0, 1.0), "share of requests that fail")
	f.failureTypes = g.EnumList("failure-types", mock.RequestFailureNames(), mock.FailureTypeNames(),
		"how they fail, in equal shares: refuse as busy; fail after some tokens; stall after some tokens until "+
			"cancelled; truncate, which ends early as complete and claims all tokens; "+
			"lane, which closes a lane of this process after some tokens and goes on; kill, which kills this process "+
			"after some tokens")

	g = app.Group("Backlog on purpose")
	f.holdShare = g.Float("hold-share", 0, cli.Range(0.0, 1.0),
		"share of the requests that are held back for --hold-delay, in waiting places, before their engine queues "+
			"them. The process's mean time to first response grows by share x delay; "+
			"the analysis calls it a holder when that is over 3 inter-token latencies, over twice the median "+
			"process's mean, and a third or more of what the slowest process has")
	f.holdDelay = g.Duration("hold-delay", 0, cli.Range(0, time.Hour), "how long; --speedup-ratio does not divide it")

	f.plane = planeflags.Register(app, planeflags.Options{Arms: planeflags.ArmAlone})
	app.Check(f.check)
	return f
}

// check looks at what single ranges cannot see.
func (f *flags) check() error {
	if interval := float64(*f.itl) / *f.speedup; interval < float64(mock.MinInterTokenLatency) {
		return fmt.Errorf("--inter-token-latency %s with --speedup-ratio %v makes a pass every %s: the engine makes "+
			"one every %s at most, use a lower ratio",
			*f.itl, *f.speedup, time.Duration(interval), mock.MinInterTokenLatency)
	}
	if (*f.holdShare > 0) != (*f.holdDelay > 0) {
		return fmt.Errorf("--hold-share %v with --hold-delay %s holds nothing: set both", *f.holdShare, *f.holdDelay)
	}
	return nil
}

// checkFiles is what a run would refuse before it asks anybody else.
func (f *flags) checkFiles() error {
	s, err := f.settings()
	if err != nil {
		return err
	}
	return errors.Join(s.disco.Etcd.Validate(), s.disco.NATS.Validate())
}

// settings are the values after parsing, with everything that is derived from others.
type settings struct {
	name, workerPrefix, model, adminAddr string
	adminPprof                           bool
	workers                              int
	startup, grace, drain                time.Duration
	engine                               mock.Config // of each engine, without Index, Flush and Observer
	disco                                discoveryflags.Settings
	trace                                tracing.Config // without its Logger
	plane                                planeflags.Settings
	values                               map[string]string // all flags in force, for /debug/plane
}

func (f *flags) settings() (settings, error) {
	disco, err := f.disco.Settings()
	if err != nil {
		return settings{}, err
	}
	name, err := cli.ProcessName(*f.name)
	if err != nil {
		return settings{}, err
	}
	s := settings{
		name: name, workerPrefix: *f.workerPrefix, model: *f.model, adminAddr: *f.adminAddr, adminPprof: *f.adminPprof,
		disco: disco, workers: *f.numWorkers,
		startup: *f.startup, grace: *f.grace, drain: *f.drain,
		plane: f.plane.Settings(), values: f.app.Values(),
	}
	s.trace = f.trace.Config("mockworker", s.name)
	if s.workerPrefix == "" {
		s.workerPrefix = prefixFrom(s.name)
	}
	seed := uint64(*f.seed)
	if seed == 0 {
		h := fnv.New64a()
		h.Write([]byte(s.name))
		seed = h.Sum64()
	}
	s.engine = mock.Config{
		Count: s.workers, Seed: seed,
		TimeToFirstToken: orNone(*f.ttft), TimeToFirstTokenStdDev: *f.ttftStdDev,
		InterTokenLatency: *f.itl, InterTokenLatencyStdDev: *f.itlStdDev, SpeedupRatio: *f.speedup,
		MaxNumSeqs: *f.maxNumSeqs, MaxWaitingQueueLength: orNone(*f.maxWaiting),
		OutputTokens: *f.outputTokens, TokenBytes: *f.tokenBytes,
		FailureRate: *f.failureRate, HoldShare: *f.holdShare, HoldDelay: *f.holdDelay,
	}
	if s.engine.FailureTypes, err = mock.ParseFailureTypes(strings.Join(*f.failureTypes, ",")); err != nil {
		return settings{}, fmt.Errorf("--failure-types: %w", err)
	}
	return s, nil
}

// injects tells whether failures of a kind are asked for.
func (s settings) injects(kind mock.FailureType) bool {
	return s.engine.FailureRate > 0 && slices.Contains(s.engine.FailureTypes, kind)
}

// holderLimit is how many inter-token latencies a process's mean time to first response must lie above the median
// process's before it is a holder.
const holderLimit = 3

// held is by how much the share that is held moves the process's mean time to first response. enough says whether that
// can make it a holder.
func (s settings) held() (mean time.Duration, enough bool) {
	itl := time.Duration(float64(s.engine.InterTokenLatency) / s.engine.SpeedupRatio)
	mean = time.Duration(s.engine.HoldShare * float64(s.engine.HoldDelay))
	return mean, mean > holderLimit*itl
}

// orNone turns a user's 0, which means none, into what the engine's configuration has for it.
func orNone[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// maxPrefix leaves room for the number of the engine in a worker id of 128 bytes.
const maxPrefix = 120

// prefixFrom makes a worker id prefix from a process name: host names have dots, which NATS subjects and etcd keys must
// not.
func prefixFrom(name string) string {
	out := strings.Map(func(r rune) rune {
		if discovery.ValidName(string(r)) {
			return r
		}
		return '-'
	}, name)
	return out[max(len(out)-maxPrefix, 0):] // the end holds the process id
}

func validPrefix(s string) error {
	if !discovery.ValidName(s) || len(s) > maxPrefix {
		return fmt.Errorf("is not a worker id prefix: use 1 to %d letters, digits, '-' and '_'", maxPrefix)
	}
	return nil
}
