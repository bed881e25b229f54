package doctor

import (
	"context"
	"log/slog"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

// AddCommand declares the command doctor of a program. declare declares the program's flags at the command, so that
// both take the same, and returns what makes the Config once they were parsed.
func AddCommand(app *cli.App, declare func(*cli.App) func() (Config, error)) {
	c := app.Command("doctor",
		"looks whether machine, network and servers fit the settings, and says what to change; takes the flags that "+
			"the program will get")
	config := declare(c)
	asJSON := c.Group("Report").Bool("json", false, "print the report as JSON")
	c.Handle(func(ctx context.Context, log *slog.Logger) error {
		cfg, err := config()
		if err != nil {
			return err
		}
		cfg.Program, cfg.Values = app.Name(), c.Values()
		r := Run(ctx, cfg)
		write := r.Write
		if *asJSON {
			write = r.WriteJSON
		}
		if err := write(c.Stdout); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx) // and what was found is not all
		}
		return r.Err()
	})
}
