package cluster

import (
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// readSettings asks the frontend and the first worker process which transport settings are in force; the other worker
// processes were started alike. The lanes of the load must still be there, since sockets tell much of it. Who does not
// answer is left out, and the check of the run says so.
func (s *session) readSettings() []report.Setting {
	client := s.httpClient()
	defer client.CloseIdleConnections()
	var out []report.Setting
	read := func(role, name, admin string) {
		var v struct {
			Settings []planeflags.Setting `json:"settings"`
		}
		if err := s.view(client, admin, &v); err != nil {
			s.cfg.Log.Warn("the settings in force are not in the report", "process", name, "error", err)
			return
		}
		for _, set := range v.Settings {
			out = append(out, report.Setting{Process: name, Role: role, Name: set.Name, Asked: set.Asked,
				InForce: set.InForce})
		}
	}
	read("frontend", s.frontend.name, s.frontendAdmin)
	read("worker", s.workers[0].name, s.workerAdmins[0])
	return out
}
