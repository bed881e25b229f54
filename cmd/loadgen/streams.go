package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/laneway-ai/laneway/internal/lab/streambench"
	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/transport"
)

// Items of a cell, as the reference has them.
const (
	itemsOfCell = 200_000
	itemsLeast  = 256 // one for each of the most streams
)

// addStreams declares the command `loadgen streams`.
func addStreams(parent *cli.App) {
	side := declareSide(parent, "streams",
		"measures response streams over lanes: items a second over all streams, after a warm-up of a tenth")
	app := side.app
	g := app.Group("Tables")
	planes := g.EnumList("planes", []string{transport.PlaneTCP, transport.PlaneQUIC}, planeflags.Planes(),
		"planes to measure")
	lanes := g.EnumList("lanes", []string{"1", "2", "4", "8"}, []string{"1", "2", "4", "8", "16"},
		"lanes of the link; the server has 4 ports")
	streams := g.EnumList("streams", []string{"16", "64", "256"}, []string{"1", "4", "16", "64", "256"},
		"streams that are open at once, of 64 B and of 16 KiB items; in brackets: bytes of the busiest lane over the "+
			"mean of all lanes")
	items := g.Int("item-count", itemsOfCell, cli.Range(itemsLeast, 1_000_000_000).Unit("items"),
		"items of each cell, split evenly over its streams")
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		quiet := slog.New(slog.DiscardHandler) // each cell makes transports, which would say the same each time
		create := func(host string) transportbench.Handler { return streambench.NewHandler(host, quiet) }
		return side.run(ctx, log, create, func(ctx context.Context, at string) error {
			r, err := streambench.Execute(ctx, streambench.Config{
				Connect: at, Planes: *planes, Lanes: numbers(*lanes), Streams: numbers(*streams),
				Runs: side.repetitions(), Log: quiet,
				Items:    side.count("item-count", *items, itemsOfCell, itemsOfCell, itemsLeast),
				Progress: func(s string) { fmt.Fprintln(app.Stderr, s) },
			})
			if err != nil {
				return outcome(err)
			}
			return side.show(r, fmt.Sprintf("%d items a cell", r.Items))
		})
	})
}

// numbers reads words of a list that holds numbers only.
func numbers(words []string) []int {
	out := make([]int, len(words))
	for i, w := range words {
		out[i], _ = strconv.Atoi(w)
	}
	return out
}
