package doctor

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/program/discoveryflags"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// Config says what is examined. It is passed by value.
type Config struct {
	Program string // "frontend"
	// Worker says that the program serves workers: it listens on the plane and registers. Else it dials those that are
	// registered.
	Worker bool
	Plane  planeflags.Settings
	// Discovery is where etcd and NATS are. DiscoveryErr is why its files could not be read; then neither is asked.
	Discovery    discoveryflags.Settings
	DiscoveryErr error
	// Listen are the TCP addresses that the program listens on, by flag.
	Listen map[string]string
	// OpenRequests is how many requests the program holds open at most, each a file; 0 = not bounded.
	OpenRequests int
	// Values are all flags in force; those that name certificates are looked at.
	Values map[string]string

	timeout time.Duration // of one answer of the network; 0 = 3 s. Tests shorten it.
}

// answerTimeout is how long a port or a server may take. A packet that a firewall drops is never answered.
const answerTimeout = 3 * time.Second

// Run makes all checks. It waits for each answer for a few seconds at most, and ends early with ctx.
func Run(ctx context.Context, cfg Config) *Report {
	if cfg.timeout == 0 {
		cfg.timeout = answerTimeout
	}
	r := &Report{Program: cfg.Program}
	checkCertificates(r, cfg.Values, time.Now())
	checkSysctls(r, cfg.Plane)
	checkListen(ctx, r, cfg.Listen)

	id, err := transport.NewIdentity()
	if err != nil {
		r.fail("identity", err.Error(), "")
		return r
	}
	transports, err := cfg.Plane.Transports(id, slog.New(slog.DiscardHandler))
	if err != nil {
		r.fail("transports", err.Error(), "correct the setting that it names")
	}
	if cfg.Worker {
		checkPorts(ctx, r, cfg, transports)
		checkAdvertised(ctx, r, cfg, id, transports)
	} else {
		checkBuffers(ctx, r, transports)
	}
	processes := 0
	if cfg.DiscoveryErr != nil {
		r.fail("discovery", cfg.DiscoveryErr.Error(), "correct the file that it names")
	} else {
		registered := checkEtcd(ctx, r, cfg)
		checkNATS(ctx, r, cfg)
		if !cfg.Worker && registered != nil {
			processes = checkPeers(ctx, r, cfg, registered, transports)
		}
	}
	checkFiles(r, cfg, processes)
	for _, t := range transports {
		if err := t.Close(); err != nil {
			r.warn("transports", "could not be closed: "+err.Error(), "")
		}
	}
	return r
}

// usesQUIC tells whether UDP matters.
func usesQUIC(s planeflags.Settings) bool {
	return slices.Contains(planeflags.Carriers(s.Planes), transport.PlaneQUIC)
}

// lanes is how many connections a link has at most.
func lanes(s planeflags.Settings) int {
	most, special := 0, s.PlaneLanes()
	for _, p := range s.Planes {
		if n := special[p]; n > 0 {
			most = max(most, n)
		} else {
			most = max(most, s.Lanes)
		}
	}
	return most
}
