package streambench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/transport"
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
		errs = append(errs, fmt.Errorf("nothing to measure: planes %v, lanes %v, streams %v", c.Planes, c.Lanes,
			c.Streams))
	}
	for _, n := range c.Lanes {
		if n < 1 || n > 16 {
			errs = append(errs, fmt.Errorf("%d lanes: use 1 to 16", n))
		}
	}
	for _, n := range c.Streams {
		if n < 1 || n > 1024 || n > c.Items {
			errs = append(errs,
				fmt.Errorf("%d streams of %d items in all: use 1 to 1024 streams, and an item or more for each", n,
					c.Items))
		}
	}
	if c.Runs < 1 {
		errs = append(errs, fmt.Errorf("%d repetitions: use 1 or more", c.Runs))
	}
	return errors.Join(errs...)
}

// Execute measures every cell once in each repetition, one after the other. On an error it returns what was measured
// before too.
func Execute(ctx context.Context, c Config) (*transportbench.Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ctl, err := transportbench.DialControl(ctx, c.Connect)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	r := &transportbench.Report{Schema: Schema, Cores: procstat.CPUs(), Items: c.Items, Runs: c.Runs}
	var cells []transportbench.Cell
	for _, size := range sizes {
		t := &transportbench.Table{Title: "64 B items over lanes (items/s) [busiest lane / mean]",
			Note: transportbench.Scaling(c.Lanes...), Ratios: c.ratios()}
		scale := 1.0
		if size > 64 {
			t.Title, scale = "16 KiB items over lanes (MiB/s) [busiest lane / mean]", float64(size)/(1<<20)
		}
		r.Tables = append(r.Tables, t)
		for _, plane := range c.Planes {
			for _, lanes := range c.Lanes {
				for _, streams := range c.Streams {
					row, col := rowOf(plane, lanes), columnOf(streams)
					cells = append(cells, transportbench.Cell{Name: fmt.Sprintf("%s, %s, %d B items", row, col, size),
						Measure: func(ctx context.Context) error {
							m, err := run(ctx, ctl, c.Log, plane, lanes, streams, c.Items, size)
							if err != nil {
								return err
							}
							t.Add(row, col, transportbench.Value{Number: scale * float64(c.Items) / m.elapsed.Seconds(),
								Note: fmt.Sprintf("%.2f", m.busiest)})
							return nil
						}})
				}
			}
		}
	}
	return r, transportbench.Repeat(ctx, c.Runs, cells, c.Progress)
}

func rowOf(plane string, lanes int) string { return plane + ", " + transportbench.Lanes(lanes) }
func columnOf(streams int) string          { return fmt.Sprintf("%d streams", streams) }

// ratios are columns: few streams to more of them, and with the fewest and the most streams, many lanes to the fewest
// and QUIC to TCP.
func (c Config) ratios() (out []transportbench.Ratio) {
	if len(c.Streams) > 1 {
		few, more := columnOf(c.Streams[0]), columnOf(c.Streams[1])
		out = append(out, transportbench.Ratio{Title: few + " / " + more, Column: few, Base: more})
	}
	one, tcp := map[string]string{}, map[string]string{}
	for _, plane := range c.Planes {
		for _, lanes := range c.Lanes {
			row := rowOf(plane, lanes)
			one[row] = rowOf(plane, slices.Min(c.Lanes))
			if plane == transport.PlaneQUIC {
				tcp[row] = rowOf(transport.PlaneTCP, lanes)
			}
		}
	}
	for _, streams := range slices.Compact([]int{slices.Min(c.Streams), slices.Max(c.Streams)}) {
		col := columnOf(streams)
		if len(c.Lanes) > 1 {
			out = append(out, transportbench.Ratio{Title: col + ", to " + transportbench.Lanes(slices.Min(c.Lanes)),
				Column: col, Base: col, Rows: one})
		}
		if slices.Contains(c.Planes, transport.PlaneQUIC) && slices.Contains(c.Planes, transport.PlaneTCP) {
			out = append(out, transportbench.Ratio{Title: col + ", quic / tcp", Column: col, Base: col, Rows: tcp})
		}
	}
	return out
}
