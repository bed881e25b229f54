package planebench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
)

// Execute runs all arms, interleaved, and returns the report of what was run. An error comes with the runs before it.
func Execute(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := MakeProfileDir(cfg.ProfileDir); err != nil {
		return nil, err
	}
	arms := cfg.arms()
	for _, plane := range cfg.Planes {
		for _, b := range cfg.Baselines {
			if !refplane.Mode(b).Over(plane) {
				cfg.progress("%s is left out over %s: it runs over tcp and tls", b, plane)
			}
		}
	}
	r := newReport(cfg)
	for rep := range cfg.Runs {
		for _, a := range benchtable.Order(arms, rep) {
			began := time.Now()
			run, err := oneRun(ctx, cfg, a, rep+1)
			if err != nil {
				return r, fmt.Errorf("%s run %d: %w", a, rep+1, err)
			}
			if n, first := run.Clamped(); n > 0 && rep == 0 {
				cfg.Log.Warn("the kernel has clamped socket buffers", "arm", a.String(), "buffers", n, "first", first,
					"fix", "sysctl net.core.rmem_max, net.core.wmem_max")
			}
			r.Runs = append(r.Runs, run)
			cfg.progress("%s run %d of %d: %s (%s in all)", a, rep+1, cfg.Runs, run,
				time.Since(began).Round(100*time.Millisecond))
		}
	}
	r.Ratios = ratios(cfg.pairs(arms), r.Runs)
	return r, nil
}

// MakeProfileDir makes the folder of --cpuprofile-dir, "" = none.
func MakeProfileDir(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--cpuprofile-dir: %w", err)
	}
	return nil
}

// Arms are the names of what is run in each repetition, in order: PLANE-DELIVERY, with -gap-DURATION or a baseline's
// name behind it, and PEER-DELIVERY.
func (c Config) Arms() (names []string) {
	for _, a := range c.arms() {
		names = append(names, a.String())
	}
	return names
}

// arms are the ways that are run in each repetition, in order.
func (c Config) arms() (arms []arm) {
	for _, plane := range c.Planes {
		for _, delivery := range c.Deliveries {
			for _, gap := range c.gaps() {
				arms = append(arms, arm{plane: plane, delivery: delivery, gap: gap})
			}
			for _, b := range c.Baselines {
				if refplane.Mode(b).Over(plane) {
					arms = append(arms, arm{plane: plane, delivery: delivery, baseline: b})
				}
			}
		}
	}
	for _, p := range c.Peers {
		for _, delivery := range p.Deliveries {
			arms = append(arms, arm{plane: p.Name, delivery: delivery, peer: true})
		}
	}
	return arms
}

// gaps are the names of Gaps, or the one of the settings, which needs none.
func (c Config) gaps() (out []string) {
	for _, g := range c.Gaps {
		out = append(out, g.String())
	}
	if len(out) == 0 {
		return []string{""}
	}
	return out
}

// pairs are the arms that are compared: those that Compare names, else each with its base.
func (c Config) pairs(arms []arm) (pairs [][2]arm) {
	if len(c.Compare) == 0 {
		for _, a := range arms[1:] {
			pairs = append(pairs, [2]arm{a, a.base(arms[0])})
		}
		return pairs
	}
	for _, names := range c.Compare {
		var pair [2]arm
		for i, name := range names { // Validate has found them all
			pair[i] = arms[slices.IndexFunc(arms, func(a arm) bool { return a.String() == name })]
		}
		pairs = append(pairs, pair)
	}
	return pairs
}

// WrongError says that records were wrong, or that the counts of both ends do not meet.
type WrongError struct{ Problems []string }

func (e *WrongError) Error() string { return strings.Join(e.Problems, "; ") }

// Verdict is nil when all records of all runs were right and no more than the share maxErrors of the responses failed.
func (r *Report) Verdict(maxErrors float64) error {
	var problems []string
	for _, run := range r.Runs {
		name := fmt.Sprintf("%s run %d", run.arm(), run.Run)
		if run.Wrong > 0 {
			problems = append(problems, fmt.Sprintf("%s: %d wrong records", name, run.Wrong))
		}
		if run.Invalid != "" {
			problems = append(problems, name+": "+run.Invalid)
		}
		if all := float64(run.ErrorsAll) + float64(run.CompletedAll); run.ErrorsAll > 0 &&
			float64(run.ErrorsAll) > maxErrors*all {
			problems = append(problems, fmt.Sprintf("%s: %d of %.0f responses failed: %s", name, run.ErrorsAll, all,
				strings.Join(run.Notes, "; ")))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &WrongError{Problems: problems}
}
