package doctor

import (
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

const (
	// ownFiles is what a program opens beside lanes and clients: etcd, NATS, admin listener, its own files.
	ownFiles = 512
	// assumedFrontends is how many frontends a worker is expected to have; it does not know them beforehand.
	assumedFrontends = 16
	// fewClients is under what number of clients a frontend is warned.
	fewClients = 1024
)

// checkFiles compares the limit of open files with what lanes and clients need.
func checkFiles(r *Report, cfg Config, processes int) {
	const check = "open files"
	s := cfg.Plane
	if cfg.Worker {
		endpoints := len(s.Planes) * s.ServerEndpoints
		need := ownFiles + endpoints + assumedFrontends*lanes(s)
		judgeFiles(r, check, need, fmt.Sprintf("%d endpoints and %d lanes from each of %d frontends", endpoints,
			lanes(s), assumedFrontends))
		return
	}
	need, what := ownFiles+processes*lanes(s), fmt.Sprintf("%d lanes to each of %d worker processes", lanes(s),
		processes)
	if cfg.OpenRequests > 0 {
		judgeFiles(r, check, need+cfg.OpenRequests, fmt.Sprintf("%s, and --max-open-requests %d", what,
			cfg.OpenRequests))
		return
	}
	if !judgeFiles(r, check, need, what) {
		return
	}
	var few *cli.FilesError
	if errors.As(cli.NeedFiles(need+fewClients, "these"), &few) {
		r.warn("clients", fmt.Sprintf("the limit of open files (%d) leaves %d for open requests, which nothing bounds",
			few.Have, max(0, int(few.Have)-need)),
			fmt.Sprintf("ulimit -n %d or LimitNOFILE=%d, or set --max-open-requests", need+fewClients, need+fewClients))
	}
}

func judgeFiles(r *Report, check string, need int, what string) bool {
	err := cli.NeedFiles(need, what)
	var few *cli.FilesError
	switch {
	case err == nil:
		r.ok(check, "the limit is enough for the %d that %s need", need, what)
		return true
	case errors.As(err, &few):
		r.fail(check, fmt.Sprintf("the limit is %d; %s need %d", few.Have, what, need),
			fmt.Sprintf("ulimit -n %d in the shell, LimitNOFILE=%d in the systemd unit", need, need))
	default:
		r.warn(check, err.Error(), "")
	}
	return false
}
