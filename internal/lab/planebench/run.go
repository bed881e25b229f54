package planebench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/program/procstat"
)

const (
	startTimeout = 30 * time.Second
	replyTimeout = 20 * time.Second
	// slack is what a warm-up or a window that counts requests may take beyond what the load says, by this factor.
	slack = 4
)

// arm is one way to run the plane.
type arm struct {
	plane    string // or the name of a peer
	delivery string
	baseline string
	gap      string // of ours, "" = that of the settings
	peer     bool
}

func (a arm) String() string {
	s := a.plane + "-" + a.delivery
	if a.baseline != "" {
		s += "-" + a.baseline
	}
	if a.gap != "" {
		s += "-gap-" + a.gap
	}
	return s
}

// base is the arm that an arm is compared with: a baseline with ours over the same plane and delivery, ours with the
// first arm.
func (a arm) base(first arm) arm {
	if a.baseline != "" {
		return arm{plane: a.plane, delivery: a.delivery, gap: first.gap}
	}
	return first
}

// arm is the run's.
func (r *Run) arm() arm { return arm{r.Plane, r.Delivery, r.Baseline, r.Gap, r.Peer} }

// oneRun starts the processes of one run, runs it, and stops them whatever happens.
func oneRun(ctx context.Context, cfg Config, a arm, rep int) (*Run, error) {
	g := &group{}
	defer g.Stop()
	broker, workers, fronts, err := startAll(ctx, cfg, a, rep, g)
	if err != nil {
		var child *ChildError
		if errors.As(err, &child) {
			child.Setup = true
		}
		return nil, err
	}
	if err := g.Tell(message{Op: opGo}, fronts); err != nil {
		return nil, err
	}
	cfg.Log.Debug("the load has begun", "arm", a.String(), "run", rep)
	if cfg.Warmup > 0 {
		err = g.Pass(ctx, cfg.Warmup)
	} else {
		_, err = g.Await(ctx, slack*cfg.warmupTime()+time.Minute, opSteady, fronts)
	}
	if err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}

	if err := g.Tell(message{Op: opBegin}, g.Procs); err != nil {
		return nil, err
	}
	if _, err := g.Await(ctx, replyTimeout, opBegun, g.Procs); err != nil {
		return nil, err
	}
	if cfg.began != nil {
		cfg.began(g.Procs)
	}
	began := time.Now()
	before, _ := procstat.ReadHostCPU()
	if err := g.window(ctx, cfg, fronts); err != nil {
		return nil, fmt.Errorf("in the window: %w", err)
	}
	lasted := time.Since(began)
	var host hostBusy
	if after, ok := procstat.ReadHostCPU(); ok {
		host.mean, host.least, host.ok = after.Busy(before)
	}
	if err := g.Tell(message{Op: opEnd}, g.Procs); err != nil {
		return nil, err
	}
	// The broker comes first in the group, then the workers, so what they answer comes before what the frontends do.
	windows, err := g.Await(ctx, replyTimeout, opWindow, g.Procs)
	if err != nil {
		return nil, err
	}

	if err := g.Tell(message{Op: opStop}, fronts); err != nil {
		return nil, err
	}
	stopped, err := g.Await(ctx, drainTimeout+replyTimeout, opStopped, fronts)
	if err != nil {
		return nil, fmt.Errorf("end of the load: %w", err)
	}
	others := slices.Concat(broker, workers)
	if err := g.Tell(message{Op: opTotals}, others); err != nil {
		return nil, err
	}
	totals, err := g.Await(ctx, replyTimeout, opStopped, others)
	if err != nil {
		return nil, err
	}
	run := summarize(cfg, a, rep, lasted, host, windows[len(broker):len(others)], windows[len(others):],
		totals[len(broker):], stopped)
	if len(broker) > 0 {
		run.addBroker(windows[:1], totals[:1])
	}
	return run, nil
}

// startAll starts a peer's broker where it has one, worker processes, then frontends that know them.
func startAll(ctx context.Context, cfg Config, a arm, rep int, g *group) (broker, workers, fronts []*proc, err error) {
	base := childConfig{Plane: a.plane, Delivery: a.delivery, Settings: cfg.Settings, Load: cfg.Load,
		Frontends: cfg.Frontends, Processes: cfg.WorkerProcesses,
		Baseline: a.baseline, BaselineInterval: cfg.BaselineInterval}
	if a.gap != "" {
		if base.Settings.BatchGap, err = time.ParseDuration(a.gap); err != nil {
			return nil, nil, nil, err
		}
	}
	start := func(role string, i int, c childConfig) (*proc, error) {
		c.Role, c.Index = role, i
		name := fmt.Sprintf("%s %d", role, i)
		if cfg.ProfileDir != "" {
			c.Profile = filepath.Join(cfg.ProfileDir, fmt.Sprintf("%s-%d-%s-%d.pprof", a, rep, role, i))
		}
		p, err := startProc(cfg, role, name)
		if err != nil {
			return nil, err
		}
		g.Procs = append(g.Procs, p)
		return p, p.Send(message{Op: opStart, Config: &c})
	}
	if a.peer {
		base.Peer = a.plane
	}
	if peer := peerNamed(cfg.Peers, base.Peer); peer != nil && peer.Broker != nil {
		p, err := start(roleBroker, 0, base)
		if err != nil {
			return nil, nil, nil, err
		}
		broker = []*proc{p}
		ready, err := g.Await(ctx, startTimeout, opReady, broker)
		if err != nil {
			return nil, nil, nil, err
		}
		base.Broker = ready[0].Broker
	}
	for i := range cfg.WorkerProcesses {
		p, err := start(roleWorker, i, base)
		if err != nil {
			return nil, nil, nil, err
		}
		workers = append(workers, p)
	}
	ready, err := g.Await(ctx, startTimeout, opReady, workers)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, m := range ready {
		if m.Worker == nil {
			return nil, nil, nil, errors.New("a worker process has not said where it is")
		}
		base.Workers = append(base.Workers, *m.Worker)
	}
	if cfg.Requests > 0 {
		base.Requests = (cfg.Requests + cfg.Frontends - 1) / cfg.Frontends
	}
	base.Warmup = (cfg.WarmupRequests + cfg.Frontends - 1) / cfg.Frontends
	for i := range cfg.Frontends {
		p, err := start(roleFrontend, i, base)
		if err != nil {
			return nil, nil, nil, err
		}
		fronts = append(fronts, p)
	}
	_, err = g.Await(ctx, startTimeout, opReady, fronts)
	return broker, workers, fronts, err
}

// window waits until the window is over.
func (g *group) window(ctx context.Context, cfg Config, fronts []*proc) error {
	if cfg.Requests == 0 {
		return g.Pass(ctx, cfg.Duration)
	}
	limit := cfg.Duration
	if limit == 0 {
		limit = time.Minute
		if offered := cfg.Load.offered(); offered > 0 {
			limit += slack * time.Duration(float64(cfg.Requests)/offered*float64(time.Second))
		}
	}
	if err := g.Tell(message{Op: opCount}, fronts); err != nil {
		return err
	}
	_, err := g.Await(ctx, limit, opEnough, fronts)
	var child *ChildError
	if err == nil || errors.As(err, &child) || ctx.Err() != nil || cfg.Duration == 0 {
		return err
	}
	return nil // --duration was over first
}
