package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// Outcome is one run that ended with a report.
type Outcome struct {
	Name string // ARM-N
	Dir  string
	Run  *report.Run
	// Invalid says why its numbers may not be used: errors, wrong tokens, no proof of transit. Nil when they may.
	Invalid error
	// Incomplete says what its run directory lacks. Nil when it holds all that it must.
	Incomplete error
}

// Run makes all runs, the arms in turn, and returns those that ended with a report, in order. It ends early with an
// error when ctx ends, a process dies or something does not come up; whatever happens, all that it started has ended
// when it returns.
func Run(ctx context.Context, cfg Config) ([]Outcome, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Preflight(ctx); err != nil {
		return nil, err
	}
	first, err := nextNumber(cfg.Dir, cfg.Arms)
	if err != nil {
		return nil, err
	}
	var why string
	if cfg.pins, why, err = cfg.resolvePins(); err != nil {
		return nil, err
	}
	switch {
	case len(cfg.pins) > 0:
		fmt.Fprintln(cfg.Progress, "pinned to cores:", cfg.pins.text())
	case why != "":
		fmt.Fprintln(cfg.Progress, "the processes are not pinned to cores:", why)
	}
	if cfg.Holders > 0 {
		fmt.Fprintf(cfg.Progress, "%d of %d worker processes hold half of their requests back for %s\n", cfg.Holders,
			cfg.Processes, cfg.holdDelay())
	}
	var out []Outcome
	for n := range cfg.Runs {
		for _, arm := range cfg.Arms {
			o, err := cfg.one(ctx, arm, fmt.Sprintf("%s-%d", arm, first+n))
			if o != nil {
				out = append(out, *o)
			}
			if err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// Preflight tells what would keep the runs from working, before anything is built or started: settings, open files,
// ports, servers that the user named and that do not answer.
func (c Config) Preflight(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := c.withDefaults().checkMachine(); err != nil {
		return err
	}
	return c.checkServers(ctx)
}

// nextNumber is the lowest N from which on no arm has a run in dir: a second call beside the first adds runs and
// overwrites none.
func nextNumber(dir string, arms []string) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("--artifact-dir %s: %w", dir, err)
	}
	next := 1
	for _, e := range entries {
		for _, arm := range arms {
			rest, ok := strings.CutPrefix(e.Name(), arm+"-")
			if n, err := strconv.Atoi(rest); ok && err == nil && n >= next {
				next = n + 1
			}
		}
	}
	return next, nil
}

// one makes one run.
func (c Config) one(ctx context.Context, arm, name string) (o *Outcome, err error) {
	s, err := c.open(ctx, arm, name)
	if err != nil {
		return nil, err
	}
	o, err = s.run()
	if err != nil {
		s.say("stopping everything")
	}
	stopErr := s.close()
	if err != nil {
		if stopErr != nil { // what follows from the first error is for the log
			c.Log.Warn("not everything stopped cleanly", "run", name, "error", stopErr)
		}
		return o, err
	}
	return o, stopErr
}

// run starts the cluster, waits for it, makes the load and reads the report.
func (s *session) run() (*Outcome, error) {
	began := time.Now()
	if err := s.bringUp(); err != nil {
		return nil, err
	}
	s.say("%d workers in %d processes are up after %s, the load begins", s.cfg.Workers, s.cfg.Processes,
		time.Since(began).Round(100*time.Millisecond))
	info, err := s.writeInfo()
	if err != nil {
		return nil, err
	}
	before := s.readServers()
	if err := s.startLoadgen(info); err != nil {
		return nil, err
	}
	select {
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case <-s.loadgen.Done():
	}
	if s.ctx.Err() != nil { // a process died, and the load ended because of it
		return nil, context.Cause(s.ctx)
	}
	if code := s.loadgen.ExitCode(); code != cli.ExitOK && code != cli.ExitBadRun {
		return nil, diedError(s.loadgen.spec, s.loadgen.Child)
	}
	r, err := s.addFigures(before)
	if err != nil {
		return nil, err
	}
	o := &Outcome{Name: s.name, Dir: s.dir, Run: r, Invalid: r.Verdict(s.cfg.MaxErrorRate),
		Incomplete: report.CheckCluster(s.dir)}
	if o.Invalid == nil && s.loadgen.ExitCode() == cli.ExitBadRun {
		o.Invalid = diedError(s.loadgen.spec, s.loadgen.Child)
	}
	return o, nil
}

// bringUp starts all but the load and waits until the frontend reaches every worker.
func (s *session) bringUp() error {
	s.say("starting etcd, NATS, %d worker processes and the frontend; logs: %s", s.cfg.Processes, s.logs)
	if err := s.makeNetwork(); err != nil {
		return err
	}
	if err := s.startServers(); err != nil {
		return err
	}
	if err := s.offer(); err != nil {
		return err
	}
	if err := s.startWorkers(); err != nil {
		return err
	}
	if err := s.startFrontend(); err != nil {
		return err
	}
	deadline := time.Now().Add(s.cfg.times.start)
	at, err := s.addresses(s.frontend, deadline, "http", "admin")
	if err != nil {
		return err
	}
	s.frontendHTTP, s.frontendAdmin = at[0], at[1]
	for i, c := range s.workers {
		if at, err = s.addresses(c, deadline, "admin"); err != nil {
			return err
		}
		s.workerAdmins[i] = at[0]
	}
	return s.ready(deadline)
}

// writeInfo writes what the load generator cannot know, for its --run-info.
func (s *session) writeInfo() (string, error) {
	config := map[string]any{}
	for k, v := range s.cfg.Settings {
		config[k] = v
	}
	config["response_plane"], config["lanes"], config["server_endpoints"] = s.arm, s.cfg.Lanes(s.arm),
		s.cfg.ServerEndpoints
	if slices.Contains(planeflags.ArmNames(), s.arm) {
		config["server_endpoints"] = 1 // a reference arm has no more
	}
	config["workers"], config["worker_processes"] = s.cfg.Workers, s.cfg.Processes
	config["worker_gomaxprocs"] = s.cfg.workerProcs()
	config["warmup_request_count"] = s.cfg.Warmup
	config["holders"], config["hold_delay"] = s.cfg.Holders, cli.FormatDuration(s.cfg.holdDelay())
	b, err := json.MarshalIndent(map[string]any{
		"config": config,
		"environment": report.Environment{Revision: s.cfg.Programs.Revision, Netns: s.net != nil, Pins: s.recordPins(),
			CPUs: procstat.CPUs()}, // a pinned load generator sees its own only
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("run info: %w", err)
	}
	path := filepath.Join(s.logs, "run-info.json")
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return "", fmt.Errorf("run info: %w", err)
	}
	return path, nil
}
