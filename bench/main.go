// Command bench measures Laneway beside what a user would pick today, in one interleaved run.
//
//	cd bench && go run .
//	cd bench && go run . udp
//	cd bench && go run . quic
//	cd bench && go run . http
//	cd bench && go run . gaps
//	cd bench && go run . settings
//	cd bench && go run . suite
//
// It is a module of its own, so that no peer becomes a dependency of the library.
package main

import (
	"os"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

func main() { os.Exit(run(os.Args[1:], newApp())) }

func newApp() *cli.App {
	return cli.New("bench",
		"measures response planes side by side: Laneway, other libraries, and a bare connection as the floor")
}

func run(args []string, app *cli.App) int {
	addUDP(app)
	addQUIC(app)
	addHTTP(app)
	addGaps(app)
	addSettings(app)
	addSuite(app)
	return app.Run(args, addPeers(app))
}
