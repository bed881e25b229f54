package loadgen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// PortsError says that one address cannot be given as many connections as are asked for.
type PortsError struct{ Need, Have int }

func (e *PortsError) Error() string {
	return fmt.Sprintf("%d connections to one address need as many local ports, net.ipv4.ip_local_port_range has %d: "+
		"widen it with "+
		"`sysctl -w net.ipv4.ip_local_port_range='1024 65535'` or lower the concurrency", e.Need, e.Have)
}

// CheckPorts returns a *PortsError when n connections to one address cannot be open at a time. What the kernel does not
// say is let through.
func CheckPorts(n int) error {
	s, ok := procstat.Sysctl("net.ipv4.ip_local_port_range")
	if !ok {
		return nil
	}
	f := strings.Fields(s)
	if len(f) != 2 {
		return nil
	}
	lo, err1 := strconv.Atoi(f[0])
	hi, err2 := strconv.Atoi(f[1])
	if have := hi - lo + 1; err1 == nil && err2 == nil && n > have {
		return &PortsError{Need: n, Have: have}
	}
	return nil
}
