package planebench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/refplane"
)

// Execute runs all arms, interleaved, and returns the report of what was run. An error comes with the runs before it.
func Execute(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.ProfileDir != "" {
		if err := os.MkdirAll(cfg.ProfileDir, 0o755); err != nil {
			return nil, fmt.Errorf("--cpuprofile-dir: %w", err)
		}
	}
	var arms []arm
	for _, plane := range cfg.Planes {
		for _, delivery := range cfg.Deliveries {
			arms = append(arms, arm{plane: plane, delivery: delivery})
			for _, b := range cfg.Baselines {
				if !refplane.Mode(b).Over(plane) {
					cfg.progress("%s is left out over %s: it runs over tcp and tls", b, plane)
					continue
				}
				arms = append(arms, arm{plane, delivery, b})
			}
		}
	}
	r := newReport(cfg)
	for rep := range cfg.Runs {
		// Every other repetition goes the other way round, so that a machine that slows down favours nobody.
		order := slices.Clone(arms)
		if rep%2 == 1 {
			slices.Reverse(order)
		}
		for _, a := range order {
			began := time.Now()
			run, err := oneRun(ctx, cfg, a, rep+1)
			if err != nil {
				return r, fmt.Errorf("%s run %d: %w", a, rep+1, err)
			}
			if n, first := run.Clamped(); n > 0 && rep == 0 {
				cfg.Log.Warn("the kernel has clamped socket buffers", "arm", a.String(), "buffers", n, "first", first, "fix", "sysctl net.core.rmem_max, net.core.wmem_max")
			}
			r.Runs = append(r.Runs, run)
			cfg.progress("%s run %d of %d: %s (%s in all)", a, rep+1, cfg.Runs, run, time.Since(began).Round(100*time.Millisecond))
		}
	}
	r.Ratios = ratios(arms, r.Runs)
	return r, nil
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
		if all := float64(run.ErrorsAll) + float64(run.CompletedAll); run.ErrorsAll > 0 && float64(run.ErrorsAll) > maxErrors*all {
			problems = append(problems, fmt.Sprintf("%s: %d of %.0f responses failed: %s", name, run.ErrorsAll, all, strings.Join(run.Notes, "; ")))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &WrongError{Problems: problems}
}
