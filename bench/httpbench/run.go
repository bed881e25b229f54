package httpbench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

const (
	startTimeout = 30 * time.Second
	replyTimeout = 20 * time.Second
	// fullTimeout is how long it may take until all responses are open, beside the time to first token.
	fullTimeout = time.Minute
	// drainTimeout is how long the last responses may take to end, beside a pass and a first token.
	drainTimeout = time.Minute
)

// Execute runs all arms, interleaved, and returns the report of what was run. An error comes with the runs before it.
func Execute(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := planebench.MakeProfileDir(cfg.ProfileDir); err != nil {
		return nil, err
	}
	type one struct {
		arm     Arm
		streams int
	}
	var all []one
	for _, a := range cfg.Arms {
		for _, n := range cfg.Streams {
			all = append(all, one{a, n})
		}
	}
	r := newReport(cfg)
	for rep := range cfg.Pairs {
		for _, o := range benchtable.Order(all, rep) {
			began := time.Now()
			run, err := oneRun(ctx, cfg, o.arm, o.streams, rep+1)
			if err != nil {
				return r, fmt.Errorf("%s at %d open responses, run %d: %w", o.arm.Name, o.streams, rep+1, err)
			}
			r.Runs = append(r.Runs, run)
			cfg.progress("%s, %d open, run %d of %d: %s (%s in all)", o.arm.Name, o.streams, rep+1, cfg.Pairs, run,
				time.Since(began).Round(100*time.Millisecond))
		}
	}
	r.compare(cfg)
	return r, nil
}

// processes are those of one run.
type processes struct {
	group    group
	workers  []*proc
	frontend *proc
	client   *proc
	alone    *proc // beside the arm in-process
	outPath  string
}

// hosts are the processes with engines in them.
func (p *processes) hosts() []*proc {
	if p.alone != nil {
		return []*proc{p.frontend, p.alone}
	}
	return p.workers
}

// oneRun starts the processes of one run, runs it, and stops them whatever happens.
func oneRun(ctx context.Context, cfg Config, a Arm, streams, rep int) (*Run, error) {
	p := &processes{}
	g := &p.group
	defer g.Stop()
	if err := p.start(ctx, cfg, a, streams, rep); err != nil {
		var child *childproc.Error
		if errors.As(err, &child) {
			child.Setup = true
		}
		return nil, err
	}
	load := cfg.load(streams)
	front, client := []*proc{p.frontend}, []*proc{p.client}
	if err := g.Tell(message{Op: opGo}, g.Procs); err != nil {
		return nil, err
	}
	if _, err := g.Await(ctx, fullTimeout+load.FirstToken, opFull, front); err != nil {
		return nil, fmt.Errorf("until all responses are open: %w", err)
	}
	if err := g.Pass(ctx, cfg.Warmup); err != nil {
		return nil, fmt.Errorf("warm-up: %w", err)
	}
	if err := g.Tell(message{Op: opBegin}, g.Procs); err != nil {
		return nil, err
	}
	if _, err := g.Await(ctx, replyTimeout, opBegun, g.Procs); err != nil {
		return nil, err
	}
	began := time.Now()
	before, _ := procstat.ReadHostCPU()
	if err := g.Pass(ctx, cfg.Duration); err != nil {
		return nil, fmt.Errorf("in the window: %w", err)
	}
	m := measured{lasted: time.Since(began), outPath: p.outPath}
	if after, ok := procstat.ReadHostCPU(); ok {
		m.busy, m.leastBusy, m.busyKnown = after.Busy(before)
	}
	if err := g.Tell(message{Op: opEnd}, g.Procs); err != nil {
		return nil, err
	}
	var err error
	if m.windows, err = g.Await(ctx, replyTimeout, opWindow, g.Procs); err != nil {
		return nil, err
	}

	if err := g.Tell(message{Op: opStop}, client); err != nil {
		return nil, err
	}
	if err := g.Tell(message{Op: opFinish}, p.hosts()); err != nil {
		return nil, err
	}
	ended, err := g.Await(ctx, drainTimeout+load.Interval+load.FirstToken, opStopped, client)
	if err != nil {
		return nil, fmt.Errorf("end of the load: %w", err)
	}
	if ended[0].Seen == nil {
		return nil, errors.New("the client has not said what it saw")
	}
	m.seen = *ended[0].Seen
	others := append(slices.Clone(p.workers), p.frontend)
	if err := g.Tell(message{Op: opTotals}, others); err != nil {
		return nil, err
	}
	if m.totals, err = g.Await(ctx, replyTimeout, opStopped, others); err != nil {
		return nil, err
	}
	return summarize(a, load, rep, m), nil
}

// start starts worker processes, then the frontend that knows them, then the client that knows the frontend.
func (p *processes) start(ctx context.Context, cfg Config, a Arm, streams, rep int) error {
	base := childConfig{Arm: a.Name, Load: cfg.load(streams), Processes: cfg.WorkerProcesses, OutPath: cfg.OutPath,
		Settings: cfg.Settings}
	if a.inProcess() {
		base.Processes = 1
	}
	start := func(role string, i int, c childConfig) (*proc, message, error) {
		c.Role, c.Index = role, i
		if role == roleFrontend && cfg.ProfileDir != "" {
			c.Profile = filepath.Join(cfg.ProfileDir, fmt.Sprintf("%s-%d-%d.pprof", a.Name, streams, rep))
		}
		one, err := childproc.StartProc[message](childproc.Program{Exe: cfg.Exe, Args: cfg.Args,
			Env: []string{RoleEnv + "=" + role}, Stderr: cfg.Stderr}, fmt.Sprintf("%s %d", role, i))
		if err != nil {
			return nil, message{}, err
		}
		p.group.Procs = append(p.group.Procs, one)
		if err := one.Send(message{Op: opStart, Config: &c}); err != nil {
			return nil, message{}, err
		}
		ready, err := p.group.Await(ctx, startTimeout, opReady, []*proc{one})
		if err != nil {
			return nil, message{}, err
		}
		return one, ready[0], nil
	}
	if !a.inProcess() {
		for i := range cfg.WorkerProcesses {
			w, ready, err := start(roleWorker, i, base)
			if err != nil {
				return err
			}
			if ready.Place == nil {
				return errors.New("a worker process has not said where it is")
			}
			p.workers, base.Workers = append(p.workers, w), append(base.Workers, *ready.Place)
		}
	}
	var ready message
	var err error
	if p.frontend, ready, err = start(roleFrontend, 0, base); err != nil {
		return err
	}
	base.Workers, base.URL, p.outPath = nil, ready.URL, ready.OutPath
	if p.client, _, err = start(roleClient, 0, base); err == nil && a.inProcess() {
		p.alone, _, err = start(roleAlone, 0, base)
	}
	return err
}
