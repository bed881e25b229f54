package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
)

// watchedPorts is the most drops that /proc/net/udp has shown for each port while it was watched.
type watchedPorts struct {
	drops map[int]uint64
	stop  func()
}

// watchPorts reads /proc/net/udp often, until stop: when the run has ended its sockets are gone.
func watchPorts(t *testing.T) *watchedPorts {
	w := &watchedPorts{drops: map[int]uint64{}}
	end, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			sockets, ok := procstat.UDPSockets(procstat.Self)
			if !ok {
				t.Error("/proc/net/udp cannot be read")
				return
			}
			for _, s := range sockets {
				w.drops[s.Port] = max(w.drops[s.Port], s.Drops)
			}
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	w.stop = func() { close(end); <-done }
	return w
}

// child is a process of that name among those that this one has started, 0 when there is none.
func child(t *testing.T, name string) int {
	for _, pid := range children(t) {
		if comm, err := os.ReadFile("/proc/" + pid + "/comm"); err == nil && strings.TrimSpace(string(comm)) == name {
			n, _ := strconv.Atoi(pid)
			return n
		}
	}
	return 0
}

// starve stops the frontend for 200 ms again and again while the load runs, so that its receive buffers overflow, until
// the function that it returns is called.
func starve(t *testing.T) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	pause := func(d time.Duration) bool {
		select {
		case <-end:
			return false
		case <-time.After(d):
			return true
		}
	}
	go func() { // ends with stop
		defer close(done)
		for pause(300 * time.Millisecond) {
			front := child(t, "frontend")
			if front == 0 || child(t, "loadgen") == 0 {
				continue
			}
			if err := syscall.Kill(front, syscall.SIGSTOP); err != nil {
				continue // it has just ended
			}
			pause(200 * time.Millisecond)
			_ = syscall.Kill(front, syscall.SIGCONT)
		}
	}()
	return func() { close(end); <-done }
}

// TestQUICRunCountsWhatTheKernelCounts makes a real run with small receive buffers and a frontend that stands still at
// times, so that datagrams are dropped, and holds the figures of run.json against each other and against /proc.
// Offloads are off, so that the kernel counts packets as the plane does.
func TestQUICRunCountsWhatTheKernelCounts(t *testing.T) {
	dir := t.TempDir()
	before, ok := procstat.ReadUDP(procstat.Self)
	if !ok {
		t.Fatal("/proc/net/snmp cannot be read")
	}
	ports, fed := watchPorts(t), starve(t)
	code, stdout, stderr := runApp(small(dir, "--response-plane=quic", "--lanes=2", "--quic-gro=off", "--quic-gso=off",
		"--udp-recv-buffer=16KiB", "--udp-send-buffer=64KiB",
		"--quic-stream-window=1MiB", "--concurrency=512", "--request-count=2048", "--osl=32",
		"--allow=client-limited,not steady")...)
	fed()
	ports.stop()
	if code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, stderr, stdout)
	}
	after, _ := procstat.ReadUDP(procstat.Self)
	kernel := after.Sub(before) // of the whole host, so other tests may have a part in it
	at := filepath.Join(dir, "quic-1")
	if err := report.CheckCluster(at); err != nil {
		t.Error(err)
	}
	r, err := report.Read(at)
	if err != nil {
		t.Fatal(err)
	}

	lanes := map[int]bool{}
	for _, s := range r.Environment.Sockets { // report.CheckCluster has seen that every field is there
		if s.Process != "frontend" || s.Role != "lane" || *s.GRO || *s.GSO || *s.RecvAsked != 16<<10 ||
			*s.SendAsked != 64<<10 || *s.RecvGranted < 32<<10 || *s.SendGranted < 128<<10 {
			t.Errorf("a socket with other settings than were asked for: %+v", s)
		}
		lanes[s.Port] = true
	}
	if len(lanes) < 2*2 { // of two worker processes
		t.Errorf("sockets %+v", r.Environment.Sockets)
	}
	u := r.UDP
	var sum, seen uint64
	named := map[int]int{}
	for _, s := range u.Sockets {
		sum += uint64(*s.Drops)
		seen += ports.drops[s.Port]
		if uint64(*s.Drops) > ports.drops[s.Port] {
			t.Errorf("port %d: %d drops, /proc/net/udp shows %d", s.Port, *s.Drops, ports.drops[s.Port])
		}
		if lanes[s.Port] {
			if s.Lane == nil {
				t.Errorf("port %d is no lane's", s.Port)
			} else {
				named[*s.Lane]++
			}
			delete(lanes, s.Port)
		}
	}
	if len(lanes) > 0 || named[0] < 2 || named[1] < 2 {
		t.Errorf("sockets %v are not counted; lanes %v", lanes, named)
	}
	if sum != uint64(*u.SocketDrops) {
		t.Errorf("the sockets dropped %d in all, socket_drops is %d", sum, *u.SocketDrops)
	}
	if *u.SocketDrops == 0 {
		t.Error("nothing was dropped, so this shows nothing")
	}
	// The frontend's namespace is the host's, so rcvbuf_errors has the drops of the workers' sockets too.
	if *u.SocketDrops > *u.RcvbufErrors || uint64(*u.RcvbufErrors) > kernel.RcvbufErrors {
		t.Errorf("drops %d, rcvbuf_errors %d, /proc/net/snmp %d: expected to rise in this order", *u.SocketDrops,
			*u.RcvbufErrors, kernel.RcvbufErrors)
	}
	if *u.InDatagrams <= 0 || *u.OutDatagrams <= 0 || uint64(*u.InDatagrams) > kernel.InDatagrams ||
		uint64(*u.OutDatagrams) > kernel.OutDatagrams {
		t.Errorf("%d datagrams came and %d went, /proc/net/snmp has %d and %d", *u.InDatagrams, *u.OutDatagrams,
			kernel.InDatagrams, kernel.OutDatagrams)
	}
	if *u.PacketsLost == 0 { // not as many: nobody misses a packet that only acknowledged
		t.Errorf("%d packets were lost as the senders saw it, %d were dropped", *u.PacketsLost, *u.SocketDrops)
	}
	t.Logf("drops %d of %d seen in /proc/net/udp, rcvbuf_errors %d of %d, datagrams in %d of %d, out %d of %d, lost %d",
		sum, seen, *u.RcvbufErrors, kernel.RcvbufErrors,
		*u.InDatagrams, kernel.InDatagrams, *u.OutDatagrams, kernel.OutDatagrams, *u.PacketsLost)
}
