package planebench

import (
	"runtime"
	"runtime/debug"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// Environment is what a report says of the machine and the build.
func Environment() report.Environment {
	e := report.Environment{Go: runtime.Version(), CPUs: procstat.CPUs()}
	if q, ok := procstat.CPUQuota(); ok {
		e.CPUQuota = &q
	}
	e.HostCPUs, _ = procstat.HostCPUs()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				e.Revision = s.Value
			}
		}
	}
	e.Kernel, _ = procstat.Kernel()
	e.TCPCongestionControl, _ = procstat.TCPCongestionControl()
	if n, ok := procstat.RMemMax(); ok {
		e.RmemMax = &n
	}
	if n, ok := procstat.WMemMax(); ok {
		e.WmemMax = &n
	}
	return e
}
