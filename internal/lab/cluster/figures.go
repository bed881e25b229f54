package cluster

import (
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// readServers reads the processor time that etcd and NATS have used so far, by role; what cannot be read is left out.
func (s *session) readServers() map[string]time.Duration {
	out := map[string]time.Duration{}
	for _, v := range s.servers {
		if cpu, ok := procstat.ReadCPU(v.PID()); ok {
			out[v.role] = cpu.Total()
		}
	}
	return out
}

// addFigures adds to run.json what only the parent of the processes can read: rows for etcd and NATS (over the time of
// the load, as the others'), the true peaks of memory, and the settings in force. It must be called while all but the
// load generator still run.
func (s *session) addFigures(before map[string]time.Duration) (*report.Run, error) {
	r, err := report.Read(s.dir)
	if err != nil {
		return nil, err
	}
	after := s.readServers()
	for _, v := range s.servers {
		p := row(r, v.role, v.role)
		then, ok1 := before[v.role]
		now, ok2 := after[v.role]
		if ok1 && ok2 {
			p.CPUSeconds = report.Ptr((now - then).Seconds())
		}
		peak(p, v.PID())
	}
	peak(row(r, "frontend", s.frontend.name), s.frontend.PID())
	for _, c := range s.workers {
		peak(row(r, "worker", c.name), c.PID())
	}
	r.Environment.Settings = s.readSettings()
	return r, report.WriteRun(s.dir, r)
}

// row finds the process's row, or adds one.
func row(r *report.Run, role, name string) *report.Process {
	i := slices.IndexFunc(r.Processes, func(p report.Process) bool { return p.Role == role && p.Name == name })
	if i < 0 {
		r.Processes = append(r.Processes, report.Process{Role: role, Name: name})
		i = len(r.Processes) - 1
	}
	return &r.Processes[i]
}

// peak sets the kernel's own figure; the load generator's is the largest of its samples.
func peak(p *report.Process, pid int) {
	if n, ok := procstat.RSSPeak(pid); ok {
		p.RSSPeak = &n
	}
}
