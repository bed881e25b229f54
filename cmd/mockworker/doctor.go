package main

import (
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/doctor"
)

// addDoctor declares `mockworker doctor`.
func addDoctor(app *cli.App) {
	doctor.AddCommand(app, func(c *cli.App) func() (doctor.Config, error) {
		f := declare(c)
		return func() (doctor.Config, error) {
			disco, err := f.disco.Settings()
			return doctor.Config{
				Worker: true, Plane: f.plane.Settings(), Discovery: disco, DiscoveryErr: err,
				Listen: map[string]string{"admin-addr": *f.adminAddr},
			}, nil
		}
	})
}
