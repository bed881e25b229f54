package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// checkListen looks whether the program can have its TCP addresses.
func checkListen(ctx context.Context, r *Report, listen map[string]string) {
	for _, flag := range slices.Sorted(maps.Keys(listen)) {
		l, err := cli.Listen(ctx, flag, listen[flag])
		if err != nil {
			text := err.Error()
			var fe *cli.FlagError
			if errors.As(err, &fe) {
				text = fe.Err.Error()
			}
			_, port, _ := net.SplitHostPort(listen[flag]) // a flag that is no address has failed before
			r.fail("--"+flag+" "+listen[flag], text,
				fmt.Sprintf("choose another address, or see who has it: ss -tlpn sport = :%s (a program of this kind "+
					"that runs already is fine)", port))
			continue
		}
		r.ok("--"+flag+" "+listen[flag], "can be had")
		l.Close()
	}
}

// checkPorts binds every port of the range on every plane, all at the same time, as the worker does.
func checkPorts(ctx context.Context, r *Report, cfg Config, transports []transport.Transport) {
	host, p, err := net.SplitHostPort(cfg.Plane.BindAddr)
	first, perr := strconv.Atoi(p)
	if err != nil || perr != nil {
		r.fail("--bind-addr", fmt.Sprintf("%s is not host:port", cfg.Plane.BindAddr), "write it like :7000")
		return
	}
	var open []transport.Listener
	for _, t := range transports {
		n := cfg.Plane.ServerEndpoints
		if first == 0 {
			l, err := t.Listen(ctx, cfg.Plane.BindAddr, n)
			if err != nil {
				r.fail(t.Plane()+" endpoints", err.Error(), "use fewer --server-endpoints, or another --bind-addr")
				continue
			}
			open = append(open, l)
			r.ok(t.Plane()+" endpoints", "%d ports can be bound, the kernel chooses them", n)
		} else {
			bound := 0
			for port := first; port < first+n; port++ {
				l, err := t.Listen(ctx, net.JoinHostPort(host, strconv.Itoa(port)), 1)
				if err != nil {
					r.fail(fmt.Sprintf("%s port %d", t.Plane(), port), bindText(err),
						fmt.Sprintf("free it (ss -%slpn sport = :%d says who has it; a worker that runs already is "+
							"fine), or choose another --bind-addr", proto(t.Plane()), port))
					continue
				}
				open = append(open, l)
				bound++
			}
			if bound == n {
				r.ok(t.Plane()+" ports", "%d to %d can be bound", first, first+n-1)
			}
		}
		granted(r, t)
	}
	for _, l := range open {
		l.Close()
	}
}

func bindText(err error) string {
	var b *transport.BindError
	if errors.As(err, &b) {
		return "cannot be bound: " + b.Err.Error()
	}
	return err.Error()
}

// proto is ss's letter.
func proto(plane string) string {
	if plane == transport.PlaneQUIC {
		return "u"
	}
	return "t"
}

// checkAdvertised lets a real worker find what it would tell frontends, and looks at the interfaces of these addresses.
func checkAdvertised(ctx context.Context, r *Report, cfg Config, id *transport.Identity,
	transports []transport.Transport) {
	if len(transports) == 0 {
		return
	}
	wc := cfg.Plane.Worker(id, transports, slog.New(slog.DiscardHandler))
	host, _, err := net.SplitHostPort(cfg.Plane.BindAddr)
	if err != nil {
		return // checkPorts has said so
	}
	wc.BindAddr = net.JoinHostPort(host, "0") // whether the right ports can be had was looked at one by one
	w, err := responseplane.NewWorker(wc)
	if err != nil {
		r.fail("worker", err.Error(), "correct the setting that it names")
		return
	}
	defer w.Close()
	if err := w.Listen(ctx); err != nil {
		r.fail("--advertise-addr", err.Error(), "say with --advertise-addr what frontends should dial")
		return
	}
	hosts := map[string]bool{}
	for _, p := range w.Descriptor().Planes {
		for _, e := range p.Endpoints {
			if h, _, err := net.SplitHostPort(e); err == nil {
				hosts[h] = true
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(hosts)) {
		addrs, err := net.DefaultResolver.LookupHost(ctx, h)
		switch {
		case err != nil:
			r.warn("advertised address", fmt.Sprintf("%s cannot be looked up from here: %v; frontends must be able to",
				h, err), "check the name, or use an IP address with --advertise-addr")
			continue
		case transport.IsLoopback(net.JoinHostPort(h, "1")):
			r.warn("advertised address",
				h+" is loopback: only frontends on this host, in this network namespace, can reach this worker",
				"listen on an interface that others reach (--bind-addr), or name it with --advertise-addr")
		default:
			r.ok("advertised address", "%s (%s)", h, strings.Join(addrs, ", "))
		}
		checkInterfaceMTU(r, cfg.Plane, addrs)
	}
}
