package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/bench/children"
	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/transport"
)

// Config says what is tried.
type Config struct {
	Settings []Setting
	Pairs    int
	Planes   []string
	Load     []string // flags of `loadgen plane`
	Dir      string   // gets a folder for each run
	Limit    time.Duration
	Say      func(string)
}

// Pair is one run with the setting changed over one with the default, of one plane.
type Pair struct {
	Setting string `json:"setting"`
	Plane   string `json:"plane"`
	Pair    int    `json:"pair"`
	// Marks are what makes its figures doubtful, of either run. A pair that has some is in no ratio.
	Marks    []string `json:"marks,omitempty"`
	Frontend float64  `json:"frontend_cpu_ratio"`
	Worker   float64  `json:"worker_cpu_ratio"`
	Total    float64  `json:"total_cpu_ratio"`
	// Differences of the 99th percentile in ms.
	Delay float64 `json:"delivery_delay_p99_ms_more"`
	TTFT  float64 `json:"ttft_p99_ms_more"`
}

// Left is a setting that could not be tried.
type Left struct {
	Setting string `json:"setting"`
	Why     string `json:"why"`
}

// RunError says that a run with a setting has failed.
type RunError struct {
	Setting string
	Code    int
	Text    string
}

func (e *RunError) Error() string {
	return fmt.Sprintf("%s: exit code %d: %s", e.Setting, e.Code, e.Text)
}

// defaults is the name of what the others are compared with.
const defaults = "default"

// Run tries all settings. A setting whose run fails is left out from there on, and the error names it; ctx ends
// everything, with the pairs that there are.
func Run(ctx context.Context, c Config) (pairs []Pair, left []Left, err error) {
	root, err := children.Root(ctx)
	if err != nil {
		return nil, nil, err
	}
	bin, err := os.MkdirTemp("", "laneway-settings-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(bin) // a temporary folder
	r := &runner{Config: c, root: root, bin: bin, binaries: map[string]string{}}
	if left, err = r.build(ctx); err != nil {
		return nil, left, err
	}
	var errs []error
	tried := slices.DeleteFunc(slices.Clone(c.Settings), func(s Setting) bool {
		return slices.ContainsFunc(left, func(l Left) bool { return l.Setting == s.Name })
	})
	for n := range c.Pairs {
		// A run of the default stands between two settings, beside both.
		for two := range slices.Chunk(benchtable.Order(tried, n), 2) {
			got, err := r.beside(ctx, two, n+1)
			pairs = append(pairs, got...)
			if ctx.Err() != nil {
				return pairs, left, context.Cause(ctx)
			}
			if failed, ok := errors.AsType[*RunError](err); ok && failed.Setting != defaults {
				errs = append(errs, err)
				tried = slices.DeleteFunc(tried, func(s Setting) bool { return s.Name == failed.Setting })
				left = append(left, Left{failed.Setting, failed.Error()})
			} else if err != nil {
				return pairs, left, errors.Join(append(errs, err)...)
			}
		}
	}
	return pairs, left, errors.Join(errs...)
}

type runner struct {
	Config
	root, bin string
	binaries  map[string]string // by setting; the default's is that of settings without one
}

// planes are those of the settings that are run at all.
func (r *runner) planes(settings ...Setting) (out []string) {
	for _, p := range r.Planes {
		if slices.ContainsFunc(settings,
			func(s Setting) bool { return s.Planes == nil || slices.Contains(s.Planes, p) }) {
			out = append(out, p)
		}
	}
	return out
}

// beside runs one setting or two with a run of the default between them.
func (r *runner) beside(ctx context.Context, two []Setting, pair int) (out []Pair, err error) {
	steps := slices.Insert(slices.Clone(two), 1, Setting{Name: defaults, Planes: r.planes(two...)})
	reports := make([]map[string]*planebench.Run, len(steps))
	for i, s := range steps {
		planes := r.planes(s)
		if len(planes) == 0 {
			continue
		}
		name := fmt.Sprintf("%s-%d", s.Name, pair)
		if s.Name == defaults {
			name += "-beside-" + two[0].Name
		}
		rep, e := r.load(ctx, s, name, planes)
		if e != nil {
			if s.Name == defaults || ctx.Err() != nil {
				return nil, e
			}
			err = e
			continue
		}
		reports[i] = byPlane(rep, s.Baseline)
	}
	for i, s := range steps {
		for _, plane := range r.planes(s) {
			if one, base := reports[i][plane], reports[1][plane]; i != 1 && one != nil && base != nil {
				out = append(out, ratio(s.Name, plane, pair, one, base))
			}
		}
	}
	return out, err
}

// byPlane are the runs of a report that count.
func byPlane(r *planebench.Report, baseline string) map[string]*planebench.Run {
	out := map[string]*planebench.Run{}
	for _, run := range r.Runs {
		if run.Baseline == baseline {
			out[run.Plane] = run
		}
	}
	return out
}

func ratio(name, plane string, n int, one, base *planebench.Run) Pair {
	p := Pair{Setting: name, Plane: plane, Pair: n, Marks: slices.Concat(one.Marks, base.Marks),
		Frontend: one.Frontend.CPUMS / base.Frontend.CPUMS,
		Worker:   one.Worker.CPUMS / base.Worker.CPUMS, Total: one.TotalMS / base.TotalMS}
	if one.Delay != nil && base.Delay != nil {
		p.Delay = one.Delay.P99 - base.Delay.P99
	}
	if one.TTFT != nil && base.TTFT != nil {
		p.TTFT = one.TTFT.P99 - base.TTFT.P99
	}
	return p
}

// load is one run of `loadgen plane`.
func (r *runner) load(ctx context.Context, s Setting, name string, planes []string, more ...string) (*planebench.Report,
	error) {
	r.Say(name + ": " + strings.Join(planes, ","))
	dir, err := filepath.Abs(filepath.Join(r.Dir, name))
	if err != nil {
		return nil, err
	}
	path := r.binaries[s.Name]
	if path == "" {
		path = r.binaries[defaults]
	}
	args := slices.Concat([]string{"plane", "--response-plane=" + strings.Join(planes, ","), "--log-level=error",
		"--artifact-dir=" + dir}, r.Load, s.Flags, more)
	var out strings.Builder
	code, err := children.Run(ctx, children.Command{Path: path, Args: args, Env: s.Env, Stdout: &out, Stderr: &out,
		Limit: r.Limit})
	if err != nil {
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		return nil, &RunError{s.Name, code, fmt.Sprintf("%v: %s", err, lines[len(lines)-1])}
	}
	b, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		return nil, err
	}
	rep := new(planebench.Report)
	return rep, json.Unmarshal(b, rep)
}

// build makes the binaries, the default one first, of which a profile is taken where a setting needs one.
func (r *runner) build(ctx context.Context) (left []Left, err error) {
	compile := func(name string, env []string, args ...string) error {
		r.Say("building " + name)
		path := filepath.Join(r.bin, name)
		if err := children.Go(ctx, r.root, env, append(append([]string{"build", "-o", path}, args...),
			"./cmd/loadgen")...); err != nil {
			return err
		}
		r.binaries[name] = path
		return nil
	}
	if err := compile(defaults, nil); err != nil {
		return nil, err
	}
	for _, s := range r.Settings {
		switch {
		case s.Build == nil:
			continue
		case slices.ContainsFunc(s.Build.Env, func(v string) bool { return strings.HasPrefix(v, "GOAMD64=") }) &&
			runtime.GOARCH != "amd64":
			left = append(left, Left{s.Name, "this machine is " + runtime.GOARCH})
			continue
		}
		var args []string
		if s.Build.PGO {
			profile, err := r.profile(ctx)
			if err != nil {
				return left, fmt.Errorf("%s: %w", s.Name, err)
			}
			args = []string{"-pgo=" + profile}
		}
		if err := compile(s.Name, s.Build.Env, args...); err != nil {
			return left, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return left, nil
}

// profile merges the CPU profiles of all processes of a run with the default.
func (r *runner) profile(ctx context.Context) (string, error) {
	dir := filepath.Join(r.bin, "profiles")
	if _, err := r.load(ctx, Setting{Name: defaults}, "profile-for-PGO",
		r.planes(Setting{Planes: []string{transport.PlaneTCP, transport.PlaneQUIC}}), "--cpuprofile-dir="+
			dir); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.pprof"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("the run has left no CPU profile")
	}
	merged := filepath.Join(r.bin, "default.pgo")
	return merged, children.Go(ctx, r.root, nil, append([]string{"tool", "pprof", "-proto", "-output=" + merged},
		files...)...)
}
