package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// markWhy says what a mark means for who reads the numbers.
var markWhy = map[string]string{
	MarkNotSteady: "the busiest 2 s hold over 3 times the mean starts. High percentiles show that burst, not " +
		"the system.",
	MarkClientLimited: "the load generator itself was late (schedule delay p99 over 5 ms) or out of processor time. " +
		"Latencies hold its delay too.",
	MarkMachineLimited: "all cores were over 90% busy in the window. Figures show the machine's limit.",
	MarkSharedCores: "the load generator ran on the frontend's cores. Each waited for the other; give them cores " +
		"of their own.",
	MarkPartial: "the run ended before its request count or duration.",
	MarkBundled: "usage counts over 10% more tokens than chunks with content: several tokens come in one chunk. ITL " +
		"is then a mean that no token waited; it divides by the " +
		"tokens after the first chunk where those are known, else by all but one. Read the chunk gap beside it.",
	MarkNoUsage: "complete answers did not say how many tokens they have: no token rate, and ITL only of those that " +
		"did.",
	MarkNoProof: "the counters of the plane under test do not hold the tokens, or another plane's do. The run may " +
		"not be used.",
}

// MarkMeaning says what a mark means, "" for one that this program does not know.
func MarkMeaning(mark string) string { return markWhy[mark] }

// Notices lists what a reader of the run should know beside its marks: what can be seen in run.json itself, whoever
// wrote it.
func (r *Run) Notices() []string {
	var out []string
	if _, err := time.Parse(time.RFC3339, r.StartedAt); err != nil {
		out = append(out, fmt.Sprintf("started_at is %q, not a time with an offset: nothing can be lined up with it",
			r.StartedAt))
	}
	if n, of := r.threads(); r.Environment.CPUs > 0 && n > r.Environment.CPUs {
		out = append(out,
			fmt.Sprintf("%d processes may run Go code on %d threads at once (sum of GOMAXPROCS), there are %d cores "+
				"for them: they take turns", of, n, r.Environment.CPUs))
	}
	if both := sharedPins(r.Environment.Pins); len(both) > 0 && !r.Marked(MarkSharedCores) {
		out = append(out, "the load generator and the frontend are pinned to the same cores: "+ints(both))
	}
	if why := r.TransitError(); why != "" && !r.Marked(MarkNoProof) {
		out = append(out, why)
	}
	if r.Environment.Revision == "" {
		out = append(out, "the run does not say which source revision it measured")
	}
	return out
}

// threads adds up GOMAXPROCS over the processes that say theirs.
func (r *Run) threads() (n, processes int) {
	for _, p := range r.Processes {
		if p.GOMAXPROCS != nil {
			n, processes = n+*p.GOMAXPROCS, processes+1
		}
	}
	return n, processes
}

// TransitError holds the plane's counters to the tokens of the complete requests: the plane under test must have
// carried them all, every other plane nothing. It returns "" when that is so, or when the run names no plane.
func (r *Run) TransitError() string {
	plane, _ := r.Config["response_plane"].(string)
	if plane == "" || strings.Contains(plane, ",") {
		return ""
	}
	if r.Plane == nil || r.Plane.PlaneRecords == nil {
		return fmt.Sprintf("no counter says what the plane %s carried", plane)
	}
	if w := r.Raw; w != nil && w.OutputTokens != nil && r.Plane.PlaneRecords[plane] < *w.OutputTokens {
		return fmt.Sprintf("the plane %s carried %d records, the requests have %d tokens", plane,
			r.Plane.PlaneRecords[plane], *w.OutputTokens)
	}
	for _, p := range keys(r.Plane.PlaneRecords) {
		if n := r.Plane.PlaneRecords[p]; p != plane && n != 0 {
			return fmt.Sprintf("the plane %s carried %d records in a run over %s", p, n, plane)
		}
	}
	return ""
}

// sharedPins lists the cores that both the load generator and a frontend are pinned to.
func sharedPins(pins map[string]string) []int {
	var gen, front []int
	for _, name := range keys(pins) {
		cores := coreList(pins[name])
		switch {
		case strings.HasPrefix(name, "loadgen"):
			gen = append(gen, cores...)
		case strings.HasPrefix(name, "frontend"):
			front = append(front, cores...)
		}
	}
	var both []int
	for _, c := range gen {
		if slices.Contains(front, c) && !slices.Contains(both, c) {
			both = append(both, c)
		}
	}
	slices.Sort(both)
	return both
}

// coreList reads "0-3,8" as the kernel writes it; what it cannot read names no core.
func coreList(s string) []int {
	var out []int
	for _, part := range strings.Split(s, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil || b > a+4096 {
				continue
			}
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out
}

func ints(v []int) string {
	parts := make([]string, len(v))
	for i, n := range v {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ", ")
}
