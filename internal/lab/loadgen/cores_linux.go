package loadgen

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sharedCores tells whether this process may run on a core that the process which listens at addr may use, and why. A
// server on another host shares none. A process that may use every core shares them with any server on its host; one
// that is kept to some looks for the server's process.
func sharedCores(addr string) (shared bool, why string) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !onThisHost(ap.Addr().Unmap()) {
		return false, ""
	}
	own, ok := allowedCores("self")
	if !ok {
		return false, ""
	}
	if online, err := os.ReadFile("/sys/devices/system/cpu/online"); err == nil {
		if all, ok := parseCores(string(online)); ok && len(own) >= len(all) {
			return true, "the server is on this host, and this process may use all of its cores"
		}
	}
	pid := listener(ap.Port())
	if pid == "" {
		return false, ""
	}
	theirs, ok := allowedCores(pid)
	if !ok {
		return false, ""
	}
	for c := range own {
		if theirs[c] {
			return true, fmt.Sprintf("this process and the server (pid %s) may both use core %d", pid, c)
		}
	}
	return false, ""
}

// onThisHost tells whether an address is one of this network namespace's.
func onThisHost(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, have := range addrs {
		if p, err := netip.ParsePrefix(have.String()); err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// allowedCores are the cores that a process may use.
func allowedCores(pid string) (map[int]bool, bool) {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return nil, false
	}
	_, rest, ok := strings.Cut(string(b), "\nCpus_allowed_list:")
	if !ok {
		return nil, false
	}
	line, _, _ := strings.Cut(rest, "\n")
	return parseCores(line)
}

// parseCores reads a list like "0-3,8".
func parseCores(s string) (map[int]bool, bool) {
	cores := map[int]bool{}
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		from, to, isRange := strings.Cut(part, "-")
		lo, err := strconv.Atoi(from)
		if err != nil {
			return nil, false
		}
		hi := lo
		if isRange {
			if hi, err = strconv.Atoi(to); err != nil {
				return nil, false
			}
		}
		for c := lo; c <= hi && c-lo < 1<<16; c++ {
			cores[c] = true
		}
	}
	return cores, len(cores) > 0
}

// listener is the process that listens on a TCP port, "" when that cannot be found out.
func listener(port uint16) string {
	const listening = "0A"
	var inode string
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				inode = f[9]
			}
		}
	}
	if inode == "" {
		return ""
	}
	want := "socket:[" + inode + "]"
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return ""
	}
	for _, dir := range pids {
		fds, err := os.ReadDir(dir + "/fd")
		if err != nil {
			continue // it has ended, or is another user's
		}
		for _, fd := range fds {
			if link, err := os.Readlink(dir + "/fd/" + fd.Name()); err == nil && link == want {
				return filepath.Base(dir)
			}
		}
	}
	return ""
}
