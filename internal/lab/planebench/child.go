package planebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/transport"
)

// RoleEnv names the variable that makes the program a child; it is set by the parent and by nobody else.
const RoleEnv = "LOADGEN_PLANE_ROLE"

// Roles of children.
const (
	roleWorker   = "worker"
	roleFrontend = "frontend"
	roleBroker   = "broker" // of a peer
)

// IsChild says whether this process was started as a child.
func IsChild() bool { return os.Getenv(RoleEnv) != "" }

// child is what both roles have.
type child struct {
	cfg        childConfig
	out        *writer
	log        *slog.Logger
	id         *transport.Identity
	transports []transport.Transport
	peers      []Peer
	peer       *Peer // that runs instead of ours
	profile    childproc.Profile
	began      Usage
}

// role is what a role does with the parent's commands.
type role interface {
	start(ctx context.Context) (message, error)
	begin()
	end() *Consumer
	finish() *Totals // opStop for frontends, opTotals for workers
	stats() mux.Stats
	count(u *Usage)
	close() error
}

// Child runs a child process to its end: it takes commands from in and answers on out. It returns when in ends, when
// ctx does, or with what it failed with, which the parent has been told. peers are those that the parent may name.
func Child(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger, peers ...Peer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &child{out: childproc.NewWriter[message](out), log: log, peers: peers}
	var r role
	defer func() { c.closeAll(r) }()
	return childproc.Commands(ctx, in, func(m message) (err error) {
		if r == nil {
			r, err = c.start(ctx, m)
		} else {
			err = c.do(ctx, r, m)
		}
		if err != nil {
			_ = c.out.Send(message{Op: opFailed, Error: err.Error()})
		}
		return err
	})
}

func (c *child) start(ctx context.Context, m message) (role, error) {
	if m.Op != opStart || m.Config == nil {
		return nil, fmt.Errorf("the first command is %q, expected %q with a configuration", m.Op, opStart)
	}
	c.cfg = *m.Config
	c.cfg.Settings.Planes = []string{c.cfg.Plane}
	if c.cfg.Peer != "" {
		if c.peer = peerNamed(c.peers, c.cfg.Peer); c.peer == nil {
			return nil, fmt.Errorf("peer %q is not known to this process", c.cfg.Peer)
		}
		c.cfg.Settings.Planes = nil
		if c.peer.Over != "" {
			c.cfg.Settings.Planes = []string{c.peer.Over}
		}
	}
	var err error
	if c.id, err = transport.NewIdentity(); err != nil {
		return nil, err
	}
	if len(c.cfg.Settings.Planes) > 0 {
		if c.transports, err = c.cfg.Settings.Transports(c.id, c.log); err != nil {
			return nil, err
		}
	}
	var r role = &workerRole{child: c}
	switch c.cfg.Role {
	case roleFrontend:
		r = &frontendRole{child: c}
	case roleBroker:
		r = &brokerRole{child: c}
	}
	ready, err := r.start(ctx)
	if err != nil {
		return r, err
	}
	return r, c.out.Send(ready)
}

func (c *child) do(ctx context.Context, r role, m message) error {
	switch m.Op {
	case opGo, opCount:
		f, ok := r.(*frontendRole)
		if !ok {
			return fmt.Errorf("command %q is for frontends", m.Op)
		}
		if m.Op == opCount {
			f.load.askEnough()
			return nil
		}
		f.load.start(f.ctx)
		return nil
	case opBegin:
		if err := c.profile.Begin(c.cfg.Profile); err != nil {
			return err
		}
		c.began = c.usage(r) // first, so that what completes in between counts in both
		r.begin()
		return c.out.Send(message{Op: opBegun})
	case opEnd:
		u := c.usage(r).sub(c.began)
		consumer := r.end()
		if err := c.profile.End(); err != nil {
			return err
		}
		return c.out.Send(message{Op: opWindow, Usage: &u, Consumer: consumer, Sockets: c.sockets()})
	case opStop, opTotals:
		t := r.finish()
		st := r.stats()
		t.Records += st.RecordsIn + st.RecordsOut
		t.Left = st.OpenStreams
		t.RSSPeak, _ = procstat.RSSPeak(procstat.Self)
		return c.out.Send(message{Op: opStopped, Totals: t})
	}
	return fmt.Errorf("unknown command %q", m.Op)
}

// sockets are the plane's of this process: what was asked of the kernel and what it granted.
func (c *child) sockets() (out []report.Socket) {
	name := fmt.Sprintf("%s %d", c.cfg.Role, c.cfg.Index)
	for _, t := range c.transports {
		for _, i := range t.Sockets() {
			s := report.Socket{Process: name, Role: i.Role, Port: i.Port}
			if i.RecvAsked > 0 {
				s.RecvAsked, s.RecvGranted = report.Ptr(int64(i.RecvAsked)), report.Ptr(int64(i.RecvGranted))
			}
			if i.SendAsked > 0 {
				s.SendAsked, s.SendGranted = report.Ptr(int64(i.SendAsked)), report.Ptr(int64(i.SendGranted))
			}
			if t.Plane() == transport.PlaneQUIC {
				s.GRO, s.GSO = report.Ptr(i.GRO), report.Ptr(i.GSO)
			}
			out = append(out, s)
		}
	}
	return out
}

func (c *child) usage(r role) Usage {
	u := readUsage(r.stats())
	u.Wire = readWire(c.transports)
	r.count(&u)
	return u
}

func (c *child) closeAll(r role) {
	var end func() error
	if r != nil {
		end = r.close
	}
	CloseChild(c.log, &c.profile, end, c.transports)
}

// CloseChild closes what a child has: the profile, the role, nil = none was begun, and then the transports that it
// used. What fails there is logged.
func CloseChild(log *slog.Logger, profile *childproc.Profile, role func() error, transports []transport.Transport) {
	errs := []error{profile.End()}
	if role != nil {
		errs = append(errs, role())
	}
	for _, t := range transports {
		errs = append(errs, t.Close())
	}
	if err := errors.Join(errs...); err != nil {
		log.Error("closing", "error", err)
	}
}
