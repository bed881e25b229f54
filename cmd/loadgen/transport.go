package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// Messages of a cell, as the reference has them.
const (
	messagesOneHost  = 5000
	messagesTwoHosts = 20000
	messagesLeast    = 64 // as many are in flight
)

// addTransport declares the command `loadgen transport`.
func addTransport(parent *cli.App) {
	side := declareSide(parent, "transport",
		"measures messages over lanes, without the mux: the ranges over the repetitions of each cell")
	app := side.app
	g := app.Group("Tables")
	tables := g.EnumList("tables", transportbench.Tables(), transportbench.Tables(),
		"messages = 64 B and 64 KiB, one at a time and 64 in flight (sent back by the server, the body in both "+
			"directions), pipelined (one way, from the server as responses travel, counted), over one lane of each "+
			"plane, "+
			"quic with packets of 1200, 1280 and as many bytes as path MTU discovery finds; lanes = 64 KiB pipelined "+
			"over 1, 2, 4, 8 lanes; ports = over lanes x server sockets with a port each, in both directions; group "+
			"= the same over server sockets that share one port (SO_REUSEPORT, Linux). "+
			"Beside a rate over quic, in brackets: datagrams and packets lost, by kind")
	planes := g.EnumList("planes", planeflags.Planes(), planeflags.Planes(),
		"planes to measure; ports and group are quic's")
	messages := g.Int("message-count", 0,
		cli.Range(messagesLeast,
			1_000_000_000).Unit("messages").OrZero(fmt.Sprintf("%d, or %d with --connect or --netns", messagesOneHost,
			messagesTwoHosts)), "messages of each cell, over all its lanes")
	app.Handle(func(ctx context.Context, log *slog.Logger) error {
		quiet := slog.New(slog.DiscardHandler) // each cell makes transports, which would say the same each time
		create := func(host string) transportbench.Handler { return transportbench.NewHandler(host, quiet) }
		return side.run(ctx, log, create, func(ctx context.Context, at string) error {
			r, err := transportbench.Execute(ctx, transportbench.Config{
				Connect: at, Planes: *planes, Tables: *tables, Runs: side.repetitions(), Log: quiet,
				Messages: side.count("message-count", *messages, messagesOneHost, messagesTwoHosts, messagesLeast),
				Progress: func(s string) { fmt.Fprintln(app.Stderr, s) },
			})
			if err != nil {
				return outcome(err)
			}
			return side.show(r, fmt.Sprintf("%d messages a cell", r.Messages))
		})
	})
}
