package procstat

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// HostCPU is a reading of the clocks of all cores. Two readings give how busy the host was between them.
type HostCPU struct {
	cores map[int64]procfs.CPUStat
}

// ReadHostCPU reads the clocks of all cores.
func ReadHostCPU() (HostCPU, bool) {
	fs, err := procfs.NewFS(procfs.DefaultMountPoint)
	if err != nil {
		return HostCPU{}, false
	}
	s, err := fs.Stat()
	if err != nil || len(s.CPU) == 0 {
		return HostCPU{}, false
	}
	return HostCPU{cores: s.CPU}, true
}

// Busy is the busy share of the time since an earlier reading, 0 to 1: the mean of all cores and the least busy one
// ("all cores over 90%" is least > 0.9). Time that the hypervisor took counts as busy: nobody here could use it. ok is
// false when too little time has passed to tell (the clocks step by 10 ms).
func (h HostCPU) Busy(earlier HostCPU) (mean, least float64, ok bool) {
	least = 1
	var busySum, totalSum float64
	for id, now := range h.cores {
		then, known := earlier.cores[id]
		if !known {
			continue
		}
		idle := now.Idle + now.Iowait - (then.Idle + then.Iowait)
		busy := busySeconds(now) - busySeconds(then)
		if idle < 0 { // the kernel's iowait may run backwards
			idle = 0
		}
		if busy < 0 {
			busy = 0
		}
		if idle+busy < clockTick.Seconds()/2 {
			continue
		}
		least = min(least, busy/(idle+busy))
		busySum += busy
		totalSum += idle + busy
	}
	if totalSum <= 0 {
		return 0, 0, false
	}
	return busySum / totalSum, least, true
}

// busySeconds leaves guest time out: the kernel counts it in User and Nice already.
func busySeconds(s procfs.CPUStat) float64 {
	return s.User + s.Nice + s.System + s.IRQ + s.SoftIRQ + s.Steal
}

// HostCPUs is how many cores the host has, as its clocks show them: those that Busy is the share of. Affinity and
// quotas do not change it.
func HostCPUs() (int, bool) {
	h, ok := ReadHostCPU()
	return len(h.cores), ok
}

// Sysctl reads a kernel setting by its dotted name: net.core.rmem_max.
func Sysctl(name string) (string, bool) {
	b, err := os.ReadFile(filepath.Join(procfs.DefaultMountPoint, "sys",
		filepath.FromSlash(strings.ReplaceAll(name, ".", "/"))))
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(b)), true
}

// SysctlInt reads a kernel setting that is one number.
func SysctlInt(name string) (int64, bool) {
	s, ok := Sysctl(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// RMemMax is the largest receive buffer, in bytes, that a socket may ask for (net.core.rmem_max). It is a setting of
// the host; a container in its own network namespace does not see it and gets ok false.
func RMemMax() (int64, bool) { return SysctlInt("net.core.rmem_max") }

// WMemMax is the same for send buffers.
func WMemMax() (int64, bool) { return SysctlInt("net.core.wmem_max") }

// TCPCongestionControl is the default algorithm of new TCP connections in this network namespace.
func TCPCongestionControl() (string, bool) { return Sysctl("net.ipv4.tcp_congestion_control") }

// Kernel is the kernel's release: "6.8.0-45-generic".
func Kernel() (string, bool) { return Sysctl("kernel.osrelease") }

// MTU is the MTU of a network interface of this network namespace.
func MTU(iface string) (int, bool) {
	i, err := net.InterfaceByName(iface)
	if err != nil || i.MTU <= 0 {
		return 0, false
	}
	return i.MTU, true
}

// InterfaceOf is the name of the interface that has the address ip.
func InterfaceOf(ip net.IP) (string, bool) {
	ifaces, err := net.Interfaces()
	if err != nil {
		return "", false
	}
	for _, i := range ifaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && (n.IP.Equal(ip) || i.Flags&net.FlagLoopback != 0 && ip.IsLoopback()) {
				return i.Name, true
			}
		}
	}
	return "", false
}
