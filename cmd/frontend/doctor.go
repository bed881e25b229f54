package main

import (
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/doctor"
)

// addDoctor declares `frontend doctor`.
func addDoctor(app *cli.App) {
	doctor.AddCommand(app, func(c *cli.App) func() (doctor.Config, error) {
		f := declare(c)
		return func() (doctor.Config, error) {
			disco, err := f.disco.Settings()
			return doctor.Config{
				Plane: f.plane.Settings(), Discovery: disco, DiscoveryErr: err, OpenRequests: *f.maxOpen,
				Listen: map[string]string{"http-addr": *f.httpAddr, "admin-addr": *f.adminAddr},
			}, nil
		}
	})
}
