package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/discoveryflags"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/tracing"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
)

// Values of flags that are words.
const (
	onDisconnectKill = "kill"
	onDisconnectStop = "stop"
)

// minBuffered is the least --max-buffered-bytes that serves anything: a response's window is 1/1024 of what is free,
// and at least mux.MinWindow.
const minBuffered = 1024 * mux.MinWindow

// flags are the declared flags.
type flags struct {
	app   *cli.App
	plane *planeflags.Flags
	disco *discoveryflags.Flags
	http  *httpFlags
	trace *tracing.Flags

	name, httpAddr, adminAddr *string
	adminPprof                *bool
	drainGrace, drainTimeout  *time.Duration

	router, onDisconnect, overloadStatus *string
	outPath                              *string
	maxOpen, retryLimit                  *int
	maxBuffered                          *int64
	firstToken, inactivity, sseKeepAlive *time.Duration
	requestTimeout                       *time.Duration
}

func declare(app *cli.App) *flags {
	f := &flags{app: app}

	g := app.Group("Process")
	f.name = g.String("name", "", "name of this process in reports and metrics; HOST-PID when empty")
	f.httpAddr = g.Addr("http-addr", ":8000", "where /v1/chat/completions, /v1/completions and /v1/models are")
	f.adminAddr = g.Addr("admin-addr", ":9090",
		"where /metrics, /livez, /readyz, /debug/plane and, for clients on this host, /debug/pprof/ are; port 0 lets "+
			"the kernel choose, the log says which")
	f.adminPprof = admin.DeclareProfiles(g)
	f.drainGrace = g.Duration("drain-grace", 0, cli.Range(0, 10*time.Minute),
		"on SIGTERM and SIGHUP: how long new requests are still served while load balancers see that /readyz fails; "+
			"then they get 503")
	f.drainTimeout = g.Duration("drain-timeout", 30*time.Second, cli.Range(0, time.Hour),
		"on SIGTERM and SIGHUP, after the grace: how long open responses may take to end; then they are cut with an "+
			"error event")

	f.http = declareHTTP(app)
	f.trace = tracing.Register(app)
	f.disco = discoveryflags.Register(app, discoveryflags.Options{})

	g = app.Group("Requests")
	f.router = g.Enum("router", string(responseplane.RouterLeastLoaded), routers(),
		"how the worker of a request is chosen")
	f.maxOpen = g.Int("max-open-requests", 0, cli.Range(1, 10_000_000).Unit("requests").OrZero("no bound"),
		"requests that are served at once; more are turned away (see --overload-status)")
	f.maxBuffered = g.Size("max-buffered-bytes", cli.GiB, cli.Range(int64(minBuffered),
		int64(1024*cli.GiB)).Why("because a response gets 1/1024 of what is free, and needs 4KiB"),
		"bytes that all open responses together may hold here; when they are given away, requests are turned away")
	f.firstToken = g.Duration("first-token-timeout", 2*time.Minute,
		cli.Range(time.Millisecond, 24*time.Hour).OrZero("no bound"), "how long a request may wait for its first token")
	f.requestTimeout = g.Duration("request-timeout", 0, cli.Range(time.Millisecond, 24*time.Hour).OrZero("no bound"),
		"how long a request may take from its start to its last token")
	f.inactivity = g.Duration("inactivity-timeout", time.Minute,
		cli.Range(time.Millisecond, 24*time.Hour).OrZero("no bound"),
		"how long a response may be silent between two tokens")
	f.retryLimit = g.Int("retry-limit", 3, cli.Range(0, 100).Unit("attempts").OrZero("never"),
		"how often a request that has no token yet is given to another worker")
	f.onDisconnect = g.Enum("on-disconnect", onDisconnectKill, []string{onDisconnectKill, onDisconnectStop},
		"what the worker of a client that left is told: kill ends at once, stop lets it finish its last output")
	f.overloadStatus = g.Enum("overload-status", "429", []string{"429", "503", "529"},
		"HTTP status of a request that is turned away because too much is going on")
	f.sseKeepAlive = g.Duration("sse-keepalive", 15*time.Second, cli.Range(10*time.Millisecond,
		time.Hour).OrZero("never"),
		"after so much silence a stream gets a comment line, so that proxies keep it open; before the first token "+
			"also its header, with status 200: what fails after that is an error event")

	f.outPath = g.Enum("out-path", string(frontend.OutAuto), outPaths(),
		"who writes a stream's tokens to its client: inline has the lane that brings them do it where the client "+
			"takes them at once, and wakes nobody; io_uring does the same with one system call for all tokens of a "+
			"read (Linux; HTTP/1 without TLS, other connections as inline); auto is io_uring where the kernel allows "+
			"it, else inline; pull always wakes the request's goroutine")

	f.plane = planeflags.Register(app, planeflags.Options{Arms: planeflags.ArmAlone})
	return f
}

func outPaths() []string {
	return []string{string(frontend.OutAuto), string(frontend.OutPull), string(frontend.OutInline),
		string(frontend.OutRing)}
}

func routers() []string {
	return []string{string(responseplane.RouterLeastLoaded), string(responseplane.RouterRoundRobin),
		string(responseplane.RouterRandom)}
}

// settings are the values after parsing.
type settings struct {
	name, httpAddr, adminAddr            string
	adminPprof                           bool
	drainGrace, drainTimeout             time.Duration
	router, outPath                      string
	stopOnDisconnect                     bool
	overloadStatus, maxOpen, retryLimit  int
	maxBuffered                          int64
	firstToken, inactivity, sseKeepAlive time.Duration // 0 = none
	requestTimeout                       time.Duration // 0 = none
	disco                                discoveryflags.Settings
	http                                 httpSettings
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
		name: name, httpAddr: *f.httpAddr, adminAddr: *f.adminAddr, adminPprof: *f.adminPprof, disco: disco,
		requestTimeout: *f.requestTimeout,
		drainGrace:     *f.drainGrace, drainTimeout: *f.drainTimeout,
		router: *f.router, outPath: *f.outPath, stopOnDisconnect: *f.onDisconnect == onDisconnectStop,
		maxOpen: *f.maxOpen, retryLimit: *f.retryLimit, maxBuffered: *f.maxBuffered,
		firstToken: *f.firstToken, inactivity: *f.inactivity, sseKeepAlive: *f.sseKeepAlive,
		http:  f.http.settings(),
		plane: f.plane.Settings(), values: f.app.Values(),
	}
	s.overloadStatus, _ = strconv.Atoi(*f.overloadStatus) // one of three words
	s.trace = f.trace.Config("frontend", s.name)
	if arm, ok := s.plane.Arm(); ok {
		if f.app.Source("out-path") != cli.FromDefault && s.outPath != string(frontend.OutPull) {
			return settings{},
				fmt.Errorf("--out-path %s with --response-plane %s: a reference arm's responses are pulled; use "+
					"--out-path pull", s.outPath, arm.Name)
		}
		s.outPath = string(frontend.OutPull)
	}
	return s, nil
}
