package httpbench

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// Load is what one run puts on an arm.
type Load struct {
	Streams    int           `json:"streams"` // open responses
	Engines    int           `json:"engines"` // over all worker processes
	OSL        int           `json:"osl"`
	ISL        int           `json:"isl"`
	TokenBytes int           `json:"token_bytes"`
	Interval   time.Duration `json:"interval"`            // between the passes of an engine
	FirstToken time.Duration `json:"time_to_first_token"` // of the engine
}

// offered is how many responses a second the engines can serve: a first token comes when its prefill is done, the
// second at the next pass, half an interval later in the mean, and each further one an interval later.
func (l Load) offered() float64 {
	life := l.FirstToken.Seconds() + (float64(l.OSL)-1.5)*l.Interval.Seconds()
	return float64(l.Streams) / life
}

// Config says what to run: each arm at each number of open responses, Pairs times, interleaved.
type Config struct {
	Arms []Arm
	// Streams are numbers of open responses. Load.Streams is not used.
	Streams []int
	// SameInterval keeps Load.Interval at every number of open responses; else it is that of the largest number, and
	// smaller numbers have shorter ones, so that the tokens a second are equal.
	SameInterval bool
	Load         Load
	Pairs        int

	WorkerProcesses int
	Warmup          time.Duration // load after all responses are open, before the window
	Duration        time.Duration // of the window
	OutPath         string        // of the frontend
	Settings        planeflags.Settings

	ProfileDir string // CPU profiles of the frontend's windows; "" = none
	Label      string
	Flags      map[string]any // every flag in force, for the report

	// Exe and Args start this program again as a child.
	Exe      string
	Args     []string
	Stderr   io.Writer    // what the children log; nil: only the last lines of one that fails are kept, for its error
	Progress func(string) // nil = none
	Log      *slog.Logger // required
}

// Validate joins everything that does not fit together.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if len(c.Arms) == 0 || len(c.Streams) == 0 || c.Pairs < 1 {
		bad("nothing to run: %d arms, %d numbers of open responses, %d repetitions", len(c.Arms), len(c.Streams),
			c.Pairs)
	}
	for i, n := range c.Streams {
		if n < 1 || n > 60_000 {
			bad("--streams %d: use 1 to 60000 open responses", n)
		}
		if slices.Contains(c.Streams[:i], n) {
			bad("--streams %d stands twice", n)
		}
		if n > 0 && c.interval(n) < mock.MinInterTokenLatency {
			bad("--streams %d at an equal token rate would need a pass each %v: use --inter-token-latency of %v or "+
				"more, or --equal-rate=false",
				n, c.interval(n), mock.MinInterTokenLatency*time.Duration(slices.Max(c.Streams)/n))
		}
	}
	if c.WorkerProcesses < 1 || c.Load.Engines < c.WorkerProcesses {
		bad("--engines %d with --worker-processes %d leaves processes without an engine", c.Load.Engines,
			c.WorkerProcesses)
	}
	if c.Load.OSL < 2 || c.Load.ISL < 1 || c.Load.TokenBytes < tokentext.MinSize ||
		c.Load.TokenBytes > tokentext.MaxSize {
		bad("a load of %d tokens of %d bytes after %d cannot be: use 2 tokens or more of %d to %d bytes after 1 or more", c.Load.OSL, c.Load.TokenBytes, c.Load.ISL, tokentext.MinSize, tokentext.MaxSize)
	}
	if c.Duration <= 0 || c.Warmup < 0 || c.Load.FirstToken < 0 {
		bad("a window of %v after a warm-up of %v with a first token after %v cannot be", c.Duration, c.Warmup,
			c.Load.FirstToken)
	}
	return errors.Join(errs...)
}

// interval is that of a run with so many open responses.
func (c Config) interval(streams int) time.Duration {
	if c.SameInterval {
		return c.Load.Interval
	}
	return time.Duration(float64(c.Load.Interval) * float64(streams) / float64(slices.Max(c.Streams)))
}

// load is that of a run with so many open responses.
func (c Config) load(streams int) Load {
	l := c.Load
	l.Streams, l.Interval = streams, c.interval(streams)
	return l
}

func (c Config) progress(format string, a ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, a...))
	}
}
