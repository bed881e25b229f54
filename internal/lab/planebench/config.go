package planebench

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// Ways to consume a response.
const (
	Pull = "pull" // a goroutine for each response, NextBatch
	Sink = "sink" // OnRecords, on the lane's reader
)

// Deliveries are the ways to consume a response.
func Deliveries() []string { return []string{Pull, Sink} }

// Config says what to run. The arms are Planes x Deliveries x Gaps, and Baselines beside each; each is run Runs times,
// interleaved.
type Config struct {
	Planes     []string // tcp, tls, quic
	Deliveries []string // Pull, Sink
	// Baselines are bare planes that are run beside ours, each over every plane and delivery. BaselineInterval is the
	// time between two writes of the batched one; 0 = a write for each flush.
	Baselines        []string
	BaselineInterval time.Duration
	// Gaps are longest waits for more records with which ours is run, each in an arm of its own; none = that of
	// Settings. 0 = no wait.
	Gaps []time.Duration
	// Peers are run beside ours, each in its own deliveries. Exe has to hand the same ones to Child.
	Peers []Peer
	// Compare names further pairs of arms, {arm, base}, that are compared repetition by repetition.
	Compare  [][2]string
	Runs     int // of each arm
	Load     Load
	Settings planeflags.Settings // of the plane; Planes in it is not used

	Frontends       int
	WorkerProcesses int
	Duration        time.Duration // of the window; 0 = until Requests have completed
	Requests        int           // completed in the window, over all frontends; 0 = until Duration has passed
	Warmup          time.Duration // 0 = until WarmupRequests have ended
	WarmupRequests  int           // over all frontends; 0 = until every slot has ended its first response

	ProfileDir string // CPU profiles of the windows; "" = none
	Label      string
	Flags      map[string]any // every flag in force, for the report

	// Exe and Args start this program again as a child; Role then is in its environment.
	Exe  string
	Args []string
	// Stderr takes what the children log; nil: only the last lines of one that fails are kept, for its error.
	Stderr io.Writer
	// Progress is told of each stage, nil = not.
	Progress func(string)
	Log      *slog.Logger // required

	began func([]*proc) // tests: the window of a run has begun
}

// Load is what one run puts on the plane.
type Load struct {
	Concurrency int           `json:"concurrency"` // open responses, over all frontends
	Engines     int           `json:"engines"`     // over all worker processes
	OSL         int           `json:"osl"`         // records of a response
	TokenBytes  int           `json:"token_bytes"` // of a record
	Interval    time.Duration `json:"interval"`    // between passes; 0 = as fast as the windows let it
}

// Validate joins everything that does not fit together.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if (len(c.Planes) == 0 || len(c.Deliveries) == 0) && len(c.Peers) == 0 || c.Runs < 1 {
		bad("nothing to run: %d planes, %d deliveries, %d peers, %d runs", len(c.Planes), len(c.Deliveries),
			len(c.Peers), c.Runs)
	}
	for _, pair := range c.Compare {
		for _, name := range pair {
			if !slices.Contains(c.Arms(), name) {
				bad("%q is to be compared and is not run: use some of %v", name, c.Arms())
			}
		}
	}
	if c.Frontends < 1 || c.WorkerProcesses < 1 {
		bad("--frontends %d and --worker-processes %d: use 1 or more of each", c.Frontends, c.WorkerProcesses)
	}
	for i, g := range c.Gaps {
		if g < 0 || slices.Contains(c.Gaps[:i], g) {
			bad("a gap of %v: use each gap once, none below 0", g)
		}
	}
	for _, b := range c.Baselines {
		if !slices.Contains(Baselines(), b) {
			bad("baseline %q is not known: use one of %v", b, Baselines())
		}
	}
	if c.Load.Engines < c.WorkerProcesses {
		bad("--engines %d with --worker-processes %d leaves processes without an engine: use %d engines or more",
			c.Load.Engines, c.WorkerProcesses, c.WorkerProcesses)
	}
	if c.Load.Concurrency < c.Frontends {
		bad("--concurrency %d with --frontends %d leaves frontends without a response: use %d or more",
			c.Load.Concurrency, c.Frontends, c.Frontends)
	}
	if c.Load.OSL < 1 || c.Load.TokenBytes < MinTokenBytes || c.Load.Interval < 0 {
		bad("a load of %d records of %d bytes each %v cannot be: use 1 record or more, of %d bytes or more", c.Load.OSL,
			c.Load.TokenBytes, c.Load.Interval, MinTokenBytes)
	}
	if c.Duration == 0 && c.Requests == 0 {
		bad("--duration 0 and --request-count 0: the window would never end; set one of them")
	}
	return errors.Join(errs...)
}

// offered is how many responses a second the engines can serve at the concurrency, 0 when they are not paced.
func (l Load) offered() float64 {
	if l.Interval == 0 {
		return 0
	}
	return float64(l.Concurrency) / (float64(l.OSL) * l.Interval.Seconds())
}

// lifetime is how long one whole response takes.
func (l Load) lifetime() time.Duration { return time.Duration(l.OSL+1) * l.Interval }

// warmupTime is how long a warm-up without a time of its own takes.
func (c Config) warmupTime() time.Duration {
	if offered := c.Load.offered(); c.WarmupRequests > 0 && offered > 0 {
		return time.Duration(float64(c.WarmupRequests) / offered * float64(time.Second))
	}
	return c.Load.lifetime()
}

func (c Config) progress(format string, a ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, a...))
	}
}
