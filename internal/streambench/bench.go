package streambench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"

	"github.com/laneway-ai/laneway/internal/transportbench"
)

// Schema is the name of the report's form.
const Schema = "laneway.streams/1"

// Config says what is measured. It is passed by value; there are no defaults behind the flags.
type Config struct {
	Connect  string   // where the server's control port is
	Planes   []string // tcp, tls, quic
	Lanes    []int    // of a link, 1 to 16
	Streams  []int    // open at once
	Items    int      // of a cell, over all streams
	Runs     int      // repetitions of each cell, interleaved
	Log      *slog.Logger
	Progress func(string) // may be nil
}

// Sizes of items, in bytes.
var sizes = []int{64, 16 << 10}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	var errs []error
	if len(c.Planes) == 0 || len(c.Lanes) == 0 || len(c.Streams) == 0 {
		errs = append(errs, fmt.Errorf("nothing to measure: planes %v, lanes %v, streams %v", c.Planes, c.Lanes, c.Streams))
	}
	for _, n := range c.Lanes {
		if n < 1 || n > 16 {
			errs = append(errs, fmt.Errorf("%d lanes: use 1 to 16", n))
		}
	}
	for _, n := range c.Streams {
		if n < 1 || n > 1024 || n > c.Items {
			errs = append(errs, fmt.Errorf("%d streams of %d items in all: use 1 to 1024 streams, and an item or more for each", n, c.Items))
		}
	}
	if c.Runs < 1 {
		errs = append(errs, fmt.Errorf("%d repetitions: use 1 or more", c.Runs))
	}
	return errors.Join(errs...)
}

// Report is what was measured.
type Report struct {
	Schema string                  `json:"schema"`
	Cores  int                     `json:"cores"`
	Items  int                     `json:"items"`
	Runs   int                     `json:"runs"`
	Remote bool                    `json:"remote"` // the server is another process
	Tables []*transportbench.Table `json:"tables"`
}

// Execute measures every cell once in each repetition, one after the other. On an error it returns what was measured before too.
func Execute(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	ctl, err := transportbench.DialControl(ctx, c.Connect)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	r := &Report{Schema: Schema, Cores: runtime.NumCPU(), Items: c.Items, Runs: c.Runs}
	note := ""
	if most := slices.Max(c.Lanes); most > r.Cores {
		note = fmt.Sprintf("scaling not visible: %d cores (lanes %d)", r.Cores, most)
	}
	r.Tables = []*transportbench.Table{{Title: "64 B items over lanes (items/s) [busiest lane / mean]", Note: note}, {Title: "16 KiB items over lanes (MiB/s) [busiest lane / mean]", Note: note}}
	for n := range c.Runs {
		c.Progress(fmt.Sprintf("repetition %d of %d", n+1, c.Runs))
		for i, size := range sizes {
			for _, plane := range c.Planes {
				for _, lanes := range c.Lanes {
					for _, streams := range c.Streams {
						row, col := fmt.Sprintf("%s, %d lanes", plane, lanes), fmt.Sprintf("%d streams", streams)
						m, err := run(ctx, ctl, c.Log, plane, lanes, streams, c.Items, size)
						if err != nil {
							if cause := context.Cause(ctx); cause != nil {
								err = cause
							}
							return r, fmt.Errorf("%s, %s, %d B items: %w", row, col, size, err)
						}
						v := transportbench.Value{Number: float64(c.Items) / m.elapsed.Seconds(), Note: fmt.Sprintf("%.2f", m.busiest)}
						if i > 0 {
							v.Number *= float64(size) / (1 << 20)
						}
						r.Tables[i].Add(row, col, v)
					}
				}
			}
		}
	}
	return r, nil
}
