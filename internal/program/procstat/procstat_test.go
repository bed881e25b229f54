package procstat

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("these figures are read from Linux's /proc")
	}
}

// burn uses processor time until the process has used d more of it.
func burn(t *testing.T, read func() (CPU, bool), d time.Duration) {
	t.Helper()
	first, ok := read()
	if !ok {
		t.Fatal("no CPU time")
	}
	deadline := time.Now().Add(30 * time.Second)
	for n := 0; ; n++ {
		if c, ok := read(); !ok || c.Sub(first).Total() >= d {
			if !ok {
				t.Fatal("no CPU time")
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the clock did not advance by %v", d)
		}
	}
}

func TestOwnCPUAdvances(t *testing.T) {
	burn(t, func() (CPU, bool) { return ReadCPU(Self) }, 5*time.Millisecond)
}

func TestOwnCPUAgreesWithProc(t *testing.T) {
	needLinux(t)
	burn(t, func() (CPU, bool) { return ReadCPU(Self) }, 50*time.Millisecond)
	before, ok := ReadCPU(Self)
	p, ok2 := proc(Self)
	if !ok || !ok2 {
		t.Fatal("not readable")
	}
	s, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	after, _ := ReadCPU(Self)
	ticks := time.Duration(s.UTime+s.STime) * clockTick
	if ticks < before.Total()-3*clockTick || ticks > after.Total()+3*clockTick {
		t.Errorf("/proc says %v, getrusage %v before and %v after", ticks, before.Total(), after.Total())
	}
}

// TestChild reads a child that runs and one that is gone.
func TestChild(t *testing.T) {
	needLinux(t)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if _, ok := ReadCPU(pid); !ok {
		t.Error("no CPU time of a running child")
	}
	if rss, ok := RSSPeak(pid); !ok || rss < 4096 {
		t.Errorf("peak RSS of a running child: %d, %v", rss, ok)
	}
	if at, ok := StartTime(pid); !ok || time.Since(at) > time.Minute || time.Since(at) < -5*time.Second {
		t.Errorf("start of the child: %v, %v", at, ok)
	}
	if _, ok := ReadUDP(pid); !ok {
		t.Error("no UDP counters of the child's namespace")
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if c, ok := ReadCPU(pid); ok {
		t.Errorf("CPU time of a process that is gone: %v", c)
	}
	if _, ok := RSSPeak(pid); ok {
		t.Error("peak RSS of a process that is gone")
	}
	if _, ok := StartTime(pid); ok {
		t.Error("start time of a process that is gone")
	}
	if _, ok := ReadUDP(pid); ok {
		t.Error("UDP counters of a process that is gone")
	}
	if _, ok := UDPSockets(pid); ok {
		t.Error("UDP sockets of a process that is gone")
	}
}

func TestOwnMemoryAndStart(t *testing.T) {
	needLinux(t)
	if rss, ok := RSSPeak(Self); !ok || rss < 1<<20 || rss%1024 != 0 {
		t.Errorf("peak RSS %d, %v", rss, ok)
	}
	a, ok := StartTime(Self)
	b, ok2 := StartTime(os.Getpid())
	if !ok || !ok2 || !a.Equal(b) {
		t.Errorf("start %v %v, %v %v", a, ok, b, ok2)
	}
}

// TestDropsAreSeen overruns a small receive buffer, IPv4 and IPv6, and finds the drops at the socket and in the
// namespace.
func TestDropsAreSeen(t *testing.T) {
	needLinux(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			sink, err := net.ListenPacket("udp", address)
			if err != nil {
				t.Skipf("this host cannot bind %s: %v", address, err)
			}
			defer sink.Close()
			if err := sink.(*net.UDPConn).SetReadBuffer(4096); err != nil {
				t.Fatal(err)
			}
			port := sink.LocalAddr().(*net.UDPAddr).Port
			before, ok := ReadUDP(Self)
			if !ok {
				t.Fatal("no UDP counters")
			}
			if drops, ok := UDPDrops(Self, port); !ok || len(drops) != 1 || drops[port] != 0 {
				t.Fatalf("drops before: %v, %v", drops, ok)
			}
			src, err := net.Dial("udp", sink.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			const sent = 200
			for range sent {
				if _, err := src.Write(make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
			}
			drops, ok := UDPDrops(Self, port, 1)
			if !ok || drops[port] == 0 || drops[port] > sent || len(drops) != 1 {
				t.Fatalf("drops after: %v, %v", drops, ok)
			}
			after, ok := ReadUDP(Self)
			d := after.Sub(before)
			// Other processes of the namespace count too, so these are lower bounds.
			if !ok || d.RcvbufErrors < drops[port] || d.OutDatagrams < sent {
				t.Errorf("the namespace counted %+v, the socket %d drops", d, drops[port])
			}
		})
	}
}

func TestHostCPU(t *testing.T) {
	needLinux(t)
	first, ok := ReadHostCPU()
	if !ok {
		t.Fatal("no host clocks")
	}
	if _, _, ok := first.Busy(first); ok {
		t.Error("a share over no time at all")
	}
	if _, _, ok := first.Busy(HostCPU{}); ok {
		t.Error("a share since nothing")
	}
	burn(t, func() (CPU, bool) { return ReadCPU(Self) }, 60*time.Millisecond)
	second, ok := ReadHostCPU()
	if !ok {
		t.Fatal("no host clocks")
	}
	mean, least, ok := second.Busy(first)
	if !ok || mean <= 0 || mean > 1 || least < 0 || least > mean {
		t.Errorf("busy: mean %v, least %v, %v", mean, least, ok)
	}
}

func TestEnvironment(t *testing.T) {
	needLinux(t)
	if s, ok := Kernel(); !ok || s == "" {
		t.Errorf("kernel %q, %v", s, ok)
	}
	if s, ok := TCPCongestionControl(); !ok || s == "" {
		t.Errorf("congestion control %q, %v", s, ok)
	}
	if _, ok := Sysctl("net.core.no_such_setting"); ok {
		t.Error("a setting that does not exist was read")
	}
	if _, ok := SysctlInt("kernel.osrelease"); ok {
		t.Error("text was read as a number")
	}
	name, ok := InterfaceOf(net.IPv4(127, 0, 0, 1))
	if !ok {
		t.Fatal("no interface has 127.0.0.1")
	}
	if mtu, ok := MTU(name); !ok || mtu < 1280 {
		t.Errorf("MTU of %s: %d, %v", name, mtu, ok)
	}
	if _, ok := MTU("no-such-interface"); ok {
		t.Error("MTU of an interface that does not exist")
	}
	if _, ok := InterfaceOf(net.IPv4(203, 0, 113, 77)); ok {
		t.Error("an address that nobody has was found")
	}
	if CPUs() < 1 {
		t.Error("no cores")
	}
}
