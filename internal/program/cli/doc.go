// Package cli is what all Laneway programs share: flags in named groups with an environment twin each, help and
// version texts, the logger, the end on a signal, and exit codes.
//
//	app := cli.New("mockworker", "runs mock engines that stream tokens over the response plane")
//	g := app.Group("Engine")
//	workers := g.Int("num-workers", 64, cli.Range(1, 4096), "engines in this process")
//	os.Exit(app.Run(os.Args[1:], func(ctx context.Context, log *slog.Logger) error { ... }))
//
// A long flag --udp-recv-buffer is also read from LANEWAY_UDP_RECV_BUFFER; the flag beats the variable, the variable
// beats the default. An empty variable counts as not set. All complaints about a command line are reported together.
//
// Declaring a flag twice, or with a default outside its own range, panics: that is a mistake in the program.
package cli
