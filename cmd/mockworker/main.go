// Command mockworker runs mock engines that stream tokens over the response plane. It is a worker process of a cluster
// in everything but the model: its engines batch continuously, register in etcd, take requests over NATS and answer on
// the lanes that frontends open to it.
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
		return run(ctx, s, log)
	}))
}

// newApp declares the program.
func newApp() (*cli.App, *flags) {
	app := cli.New("mockworker", "runs mock engines that stream tokens over the response plane")
	f := declare(app)
	app.CheckLast(f.checkFiles) // not for doctor, whose report says what is wrong with files
	return app, f
}
