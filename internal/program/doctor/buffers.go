package doctor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/transport"
)

const (
	rmemMax = "net.core.rmem_max"
	wmemMax = "net.core.wmem_max"
)

// checkSysctls compares the kernel's bounds of socket buffers with what the flags ask for.
func checkSysctls(r *Report, s planeflags.Settings) {
	if runtime.GOOS != "linux" {
		r.warn("kernel", "this is "+runtime.GOOS+": the kernel's settings are looked at on Linux only", "")
		return
	}
	for _, c := range []struct {
		name     string
		udp, tcp int
		flag     string
	}{{rmemMax, s.UDPRecvBuffer, s.TCPRecvBuffer, "recv-buffer"}, {wmemMax, s.UDPSendBuffer, s.TCPSendBuffer,
		"send-buffer"}} {
		asked, flag := c.tcp, "--tcp-"+c.flag
		if usesQUIC(s) && c.udp > asked {
			asked, flag = c.udp, "--udp-"+c.flag
		}
		if asked == 0 {
			continue // the kernel tunes
		}
		have, ok := procstat.SysctlInt(c.name)
		size := cli.FormatSize(int64(asked))
		switch {
		case !ok:
			r.warn(c.name, "cannot be seen from here, as in some containers; "+flag+" asks for "+size,
				"look on the host: sysctl "+c.name)
		case have < int64(asked):
			r.warn(c.name, fmt.Sprintf("is %s, %s asks for %s", cli.FormatSize(have), flag, size),
				sysctlFix(c.name, asked))
		default:
			r.ok(c.name, "is %s, %s asks for %s", cli.FormatSize(have), flag, size)
		}
	}
}

func sysctlFix(name string, n int) string {
	return fmt.Sprintf("sysctl -w %s=%d, and to keep it: echo %s=%d >> /etc/sysctl.d/90-laneway.conf", name, n, name, n)
}

// checkBuffers opens a socket of each plane as lanes have them, and looks at what the kernel gives it.
func checkBuffers(ctx context.Context, r *Report, transports []transport.Transport) {
	for _, t := range transports {
		l, err := t.Listen(ctx, "127.0.0.1:0", 1)
		if err != nil {
			r.fail(t.Plane()+" socket", "cannot be opened: "+err.Error(), "")
			continue
		}
		granted(r, t)
		if err := l.Close(); err != nil {
			r.warn(t.Plane()+" socket", "cannot be closed: "+err.Error(), "")
		}
	}
}

// granted says what the kernel gave the sockets that a transport has open. Sockets with the same are said once.
func granted(r *Report, t transport.Transport) {
	type grant struct {
		recvAsked, recvGranted, sendAsked, sendGranted int
		gro, gso                                       bool
	}
	seen := map[grant]bool{}
	for _, s := range t.Sockets() {
		g := grant{s.RecvAsked, s.RecvGranted, s.SendAsked, s.SendGranted, s.GRO, s.GSO}
		if seen[g] {
			continue
		}
		seen[g] = true
		direction(r, t.Plane()+" receive buffer", s.RecvAsked, s.RecvGranted, rmemMax)
		direction(r, t.Plane()+" send buffer", s.SendAsked, s.SendGranted, wmemMax)
		if t.Plane() == transport.PlaneQUIC {
			r.ok("quic offload", "receive (GRO) %s, send (GSO) %s", onOff(s.GRO), onOff(s.GSO))
		}
	}
}

func direction(r *Report, check string, asked, got int, sysctl string) {
	switch {
	case asked == 0:
		r.ok(check, "the kernel tunes it")
	case got == 0:
		r.warn(check, "cannot be read back here", "")
	case runtime.GOOS == "linux" && got < 2*asked: // the kernel counts double
		r.warn(check, fmt.Sprintf("a real socket was granted %s of %s that were asked for: bursts may be dropped",
			cli.FormatSize(int64(got/2)), cli.FormatSize(int64(asked))), sysctlFix(sysctl, asked))
	default:
		r.ok(check, "a real socket was granted the %s that were asked for", cli.FormatSize(int64(asked)))
	}
}

func onOff(b bool) string {
	if b {
		return "in use"
	}
	return "not in use"
}
