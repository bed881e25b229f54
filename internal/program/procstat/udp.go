package procstat

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// UDPCounters are the UDP counters of one network namespace, IPv4 and IPv6 together, since the namespace was made.
type UDPCounters struct {
	InDatagrams, OutDatagrams uint64 // with offloads on, one datagram of these may be many packets
	RcvbufErrors              uint64 // dropped because a socket's receive buffer was full
	SndbufErrors              uint64
	InErrors                  uint64 // all that were dropped on the way in, RcvbufErrors among them
}

// Sub is what was counted since an earlier reading.
func (c UDPCounters) Sub(earlier UDPCounters) UDPCounters {
	return UDPCounters{
		InDatagrams: c.InDatagrams - earlier.InDatagrams, OutDatagrams: c.OutDatagrams - earlier.OutDatagrams,
		RcvbufErrors: c.RcvbufErrors - earlier.RcvbufErrors, SndbufErrors: c.SndbufErrors - earlier.SndbufErrors,
		InErrors: c.InErrors - earlier.InErrors,
	}
}

// ReadUDP reads the counters of the network namespace that the process pid is in.
func ReadUDP(pid int) (UDPCounters, bool) {
	p, ok := proc(pid)
	if !ok {
		return UDPCounters{}, false
	}
	four, err := p.Snmp()
	if err != nil {
		return UDPCounters{}, false
	}
	var c UDPCounters
	u := four.Udp
	if !add(&c.InDatagrams, u.InDatagrams) || !add(&c.OutDatagrams, u.OutDatagrams) ||
		!add(&c.RcvbufErrors, u.RcvbufErrors) ||
		!add(&c.SndbufErrors, u.SndbufErrors) || !add(&c.InErrors, u.InErrors) {
		return UDPCounters{}, false
	}
	// A kernel without IPv6 has no such file; then there is nothing to add.
	if six, err := p.Snmp6(); err == nil {
		u := six.Udp6
		add(&c.InDatagrams, u.InDatagrams)
		add(&c.OutDatagrams, u.OutDatagrams)
		add(&c.RcvbufErrors, u.RcvbufErrors)
		add(&c.SndbufErrors, u.SndbufErrors)
		add(&c.InErrors, u.InErrors)
	}
	return c, true
}

func add(sum *uint64, v *float64) bool {
	if v == nil {
		return false
	}
	*sum += uint64(*v)
	return true
}

// UDPSocket is one UDP socket of a network namespace.
type UDPSocket struct {
	Port    int    // local port
	Drops   uint64 // datagrams that the kernel dropped at this socket since it was opened
	RxQueue uint64 // bytes that wait to be read
}

// UDPSockets lists the UDP sockets, IPv4 and IPv6, of the network namespace that the process pid is in. The sockets of
// other processes in the namespace are among them: pick by local port.
func UDPSockets(pid int) ([]UDPSocket, bool) {
	// A process's own directory has the same net/ files as /proc, of the namespace that it is in.
	fs, err := procfs.NewFS(fmt.Sprintf("%s/%d", procfs.DefaultMountPoint, pidOf(pid)))
	if err != nil {
		return nil, false
	}
	lines, err := fs.NetUDP()
	if err != nil {
		return nil, false
	}
	if six, err := fs.NetUDP6(); err == nil {
		lines = append(lines, six...)
	}
	var out []UDPSocket
	for _, l := range lines {
		if l.Drops == nil {
			return nil, false
		}
		out = append(out, UDPSocket{Port: int(l.LocalPort), Drops: *l.Drops, RxQueue: l.RxQueue})
	}
	return out, true
}

// UDPDrops are the kernel's drops at the sockets with these local ports. A port without a socket is not in the map.
func UDPDrops(pid int, ports ...int) (map[int]uint64, bool) {
	sockets, ok := UDPSockets(pid)
	if !ok {
		return nil, false
	}
	want := make(map[int]bool, len(ports))
	for _, p := range ports {
		want[p] = true
	}
	out := make(map[int]uint64, len(ports))
	for _, s := range sockets {
		if want[s.Port] {
			out[s.Port] += s.Drops // two sockets may share a port on different addresses
		}
	}
	return out, true
}
