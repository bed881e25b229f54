package httpbench

import (
	"os"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// usage is what a process has used and done since it began. The difference of two is a window's.
type usage struct {
	UserNS   int64  `json:"user_ns"`
	SystemNS int64  `json:"system_ns"`
	Tokens   uint64 `json:"tokens"` // frontend: taken
	Passes   uint64 `json:"passes"` // of the engines that it hosts
	Missed   uint64 `json:"missed"` // of them
	RSS      int64  `json:"rss"`    // at this time; of a difference, at the later time. 0 = not known
	RSSIdle  int64  `json:"rss_idle"`
}

// readUsage reads what the kernel says of this process: getrusage, where it is.
func readUsage() usage {
	u := usage{RSS: rss()}
	if cpu, ok := procstat.ReadCPU(procstat.Self); ok {
		u.UserNS, u.SystemNS = cpu.User.Nanoseconds(), cpu.System.Nanoseconds()
	}
	return u
}

// sub is what was used since an earlier reading.
func (u usage) sub(o usage) usage {
	u.UserNS -= o.UserNS
	u.SystemNS -= o.SystemNS
	u.Tokens -= o.Tokens
	u.Passes -= o.Passes
	u.Missed -= o.Missed
	return u
}

// add is the sum over processes, of what they used and did.
func (u usage) add(o usage) usage {
	u.UserNS += o.UserNS
	u.SystemNS += o.SystemNS
	u.Tokens += o.Tokens
	u.Passes += o.Passes
	u.Missed += o.Missed
	return u
}

func (u usage) cpuMS() float64 { return float64(u.UserNS+u.SystemNS) / 1e6 }

// rss is the resident set now, 0 where the system does not say.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
