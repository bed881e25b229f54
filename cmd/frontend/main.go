// Command frontend serves the OpenAI API over a cluster of workers: it finds them in etcd, hands them requests over
// NATS, and takes their tokens from the response plane.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/laneway-ai/laneway/internal/program/admin"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // who reads the log may die: answers go on
	app, f := newApp()
	admin.AddHealthcheck(app)
	addDoctor(app)
	os.Exit(app.Run(os.Args[1:], func(ctx context.Context, log *slog.Logger) error {
		s, err := f.settings()
		if err != nil {
			return err
		}
		return run(ctx, log, s, connect)
	}))
}

// newApp declares the program.
func newApp() (*cli.App, *flags) {
	app := cli.New("frontend",
		"serves the OpenAI API over the workers of a cluster; tokens come over the response plane")
	f := declare(app)
	app.CheckLast(f.check) // not for doctor, whose report says what is wrong with files
	return app, f
}
