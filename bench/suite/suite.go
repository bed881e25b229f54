package suite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/bench/children"
	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// Schema is the name of the index's form.
const Schema = "laneway.bench.suite/1"

// Config says what is run.
type Config struct {
	Only  []string // names of parts
	Quick bool
	Out   string // folder; "" = runs-bench/TIME-REVISION-XXXXXXXX
	Self  string // this program
	Say   func(string)

	parts []Part // tests; nil = Parts
}

// Index is suite.json. It is written after each part.
type Index struct {
	Schema   string   `json:"schema"`
	Started  string   `json:"started_at"`
	Ended    string   `json:"ended_at,omitempty"`
	Partial  string   `json:"partial,omitempty"` // why parts are missing
	Quick    bool     `json:"quick,omitempty"`   // its figures are of no use
	Revision Revision `json:"revision"`
	Machine  Machine  `json:"machine"`
	Command  []string `json:"command"`
	Parts    []Result `json:"parts"`
}

// Result is how a part went.
type Result struct {
	Name       string   `json:"name"`
	What       string   `json:"what"`
	Shell      string   `json:"shell"`   // what a user types for the same
	Command    []string `json:"command"` // what was run
	Dir        string   `json:"dir"`     // of the checkout, in which it ran
	Passes     int      `json:"passes"`
	ExitCode   int      `json:"exit_code"` // of the last pass; -1 = none, it was ended or could not be started
	Error      string   `json:"error,omitempty"`
	Seconds    float64  `json:"seconds"`
	Expected   float64  `json:"expected_minutes"`
	LoadBefore string   `json:"load_average_before,omitempty"`
	Stdout     string   `json:"stdout"`
	Stderr     string   `json:"stderr"`
	Artifacts  string   `json:"artifacts,omitempty"`
	Tables     string   `json:"tables,omitempty"` // as Markdown
}

// PartsError says which parts have failed.
type PartsError struct {
	Failed []string
	Bad    bool // one found an error in what it measured, not in how it was started
}

func (e *PartsError) Error() string { return "parts that failed: " + strings.Join(e.Failed, ", ") }

// Pick are the parts that the configuration names, in their order.
func (c Config) Pick() (out []Part) {
	if c.parts != nil {
		return c.parts
	}
	for _, p := range Parts() {
		if !slices.Contains(c.Only, p.Name) {
			continue
		}
		if c.Quick {
			p = p.quick()
		}
		out = append(out, p)
	}
	return out
}

// Plan is what would be run, with the minutes on 2 cores.
func Plan(parts []Part) string {
	var b strings.Builder
	sum, apart := 0.0, 0.0
	for _, p := range parts {
		what := p.What
		if p.Apart {
			what += "; when it is named"
			apart += p.Minutes
		} else {
			sum += p.Minutes
		}
		fmt.Fprintf(&b, "%-18s %5s min  %s\n", p.Name, minutes(p.Minutes), what)
	}
	if apart > 0 && sum > 0 {
		fmt.Fprintf(&b, "%-18s %5s min\n", "when named", minutes(apart))
	} else {
		sum += apart
	}
	fmt.Fprintf(&b, "%-18s %5s min, on 2 cores with nothing else to do; building comes first, a minute, "+
		"and once on a machine 5 more for the servers of the cluster\n", "together", minutes(sum))
	return b.String()
}

// Run runs the parts. What there is stands in the folder whatever happens; the error is of a part, of building, or of
// ctx.
func Run(ctx context.Context, c Config) (_ *Index, dir string, err error) {
	parts := c.Pick()
	root, err := children.Root(ctx)
	if err != nil {
		return nil, "", err
	}
	ix := &Index{Schema: Schema, Started: stamp(), Quick: c.Quick, Revision: revision(ctx, root), Machine: machine(),
		Command: os.Args}
	if dir, err = makeDir(c.Out, ix.Revision); err != nil {
		return nil, "", err
	}
	c.Say("writing to " + dir)
	defer func() {
		ix.Ended = stamp()
		if len(ix.Parts) < len(parts) || ctx.Err() != nil {
			ix.Partial = fmt.Sprintf("%d of %d parts were begun: %v", len(ix.Parts), len(parts), err)
		}
		err = errors.Join(err, ix.write(dir))
	}()
	c.Say("building")
	t, err := build(ctx, root, c.Self, parts, c.Say)
	if err != nil {
		return ix, dir, err
	}
	defer t.remove()
	failed := &PartsError{}
	for i, p := range parts {
		c.Say(fmt.Sprintf("%d of %d: %s, about %s min", i+1, len(parts), p.Name, minutes(p.Minutes)))
		r := t.run(ctx, p, dir)
		ix.Parts = append(ix.Parts, r)
		if err := ix.write(dir); err != nil {
			return ix, dir, err
		}
		if ctx.Err() != nil {
			return ix, dir, context.Cause(ctx)
		}
		c.Say(fmt.Sprintf("%s: exit code %d after %s min%s", p.Name, r.ExitCode, minutes(r.Seconds/60),
			map[bool]string{true: ": " + r.Error}[r.Error != ""]))
		if r.ExitCode != 0 || r.Error != "" {
			failed.Failed = append(failed.Failed, p.Name)
			failed.Bad = failed.Bad || r.ExitCode == cli.ExitBadRun && p.Dir == "" // a Go test's 2 is a panic
		}
	}
	if len(failed.Failed) > 0 {
		return ix, dir, failed
	}
	return ix, dir, nil
}

func stamp() string { return time.Now().Format(time.RFC3339) }

// makeDir makes the folder, which must be new or empty: results of two runs do not mix.
func makeDir(dir string, r Revision) (string, error) {
	if dir == "" {
		dir = filepath.Join("runs-bench", time.Now().Format("20060102-150405")+"-"+r.short()+"-"+
			strings.ToLower(rand.Text()[:8]))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty: name another folder with --out", dir)
	}
	return dir, err
}

// run runs a part with all its passes.
func (t *tools) run(ctx context.Context, p Part, out string) (r Result) {
	dir := filepath.Join(out, p.Name)
	cmd := t.command(p, dir)
	r = Result{Name: p.Name, What: p.What, Shell: p.Shell(), Command: append([]string{cmd.Path}, cmd.Args...),
		Dir: orRoot(p.Dir), Passes: max(p.Passes, 1), ExitCode: -1, Expected: p.Minutes, LoadBefore: load(),
		Stdout: filepath.Join(p.Name, "stdout.txt"), Stderr: filepath.Join(p.Name, "stderr.txt")}
	if p.Artifacts {
		r.Artifacts = filepath.Join(p.Name, "run")
	}
	began := time.Now()
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	fail := func(err error) Result {
		r.Error = err.Error()
		return r
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fail(err)
	}
	stdout, err := os.Create(filepath.Join(out, r.Stdout))
	if err != nil {
		return fail(err)
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(out, r.Stderr))
	if err != nil {
		return fail(err)
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	for range r.Passes {
		if r.ExitCode, err = children.Run(ctx, cmd); err != nil {
			break
		}
	}
	err = errors.Join(err, stdout.Sync(), stderr.Sync())
	// What a failed part has measured is shown too.
	var wrong error
	if r.Tables, wrong = p.tables(out, r); err == nil {
		err = wrong
	}
	if err != nil {
		return fail(err)
	}
	return r
}

// tables makes the Markdown of a part whose program has made none, and says where it is.
func (p Part) tables(out string, r Result) (string, error) {
	var t []benchtable.Table
	var err error
	switch {
	case p.Dir != "":
		t, err = goTables(filepath.Join(out, r.Stdout), p.Ratio)
	case p.Program == cluster:
		t, err = clusterTable(filepath.Join(out, r.Artifacts))
	case p.Artifacts:
		return filepath.Join(r.Artifacts, benchtable.File), nil
	}
	if err != nil || len(t) == 0 {
		return "", err
	}
	return filepath.Join(p.Name, benchtable.File), benchtable.Write(filepath.Join(out, p.Name), t...)
}

func orRoot(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}
