package httpbench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/transport"
)

// RoleEnv names the variable that makes the program a child; it is set by the parent and by nobody else.
const RoleEnv = "BENCH_HTTP_ROLE"

// Roles of children.
const (
	roleWorker   = "worker"
	roleFrontend = "frontend"
	roleClient   = "client"
	roleAlone    = "engines" // beside the arm in-process
)

// IsChild says whether this process was started as a child.
func IsChild() bool { return os.Getenv(RoleEnv) != "" }

// child is what all roles have.
type child struct {
	cfg        childConfig
	arm        Arm
	out        *childproc.Writer[message]
	log        *slog.Logger
	id         *transport.Identity
	transports []transport.Transport
	profile    childproc.Profile
	began      usage
}

// role is what a role does with the parent's commands.
type role interface {
	start(ctx context.Context) (message, error)
	load() error   // opGo
	finish() error // opFinish, and opStop of the client
	count(u *usage)
	totals() (totals, error)
	close() error
}

// Child runs a child process to its end: it takes commands from in and answers on out. It returns when in ends, when
// ctx does, or with what it failed with, which the parent has been told. arms are those that the parent may name.
func Child(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger, arms []Arm) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &child{out: childproc.NewWriter[message](out), log: log}
	var r role
	defer func() { c.closeAll(r) }()
	return childproc.Commands(ctx, in, func(m message) (err error) {
		if r == nil {
			r, err = c.start(ctx, m, arms)
		} else {
			err = c.do(r, m)
		}
		if err != nil {
			_ = c.out.Send(message{Op: opFailed, Error: err.Error()})
		}
		return err
	})
}

func (c *child) start(ctx context.Context, m message, arms []Arm) (role, error) {
	if m.Op != opStart || m.Config == nil {
		return nil, fmt.Errorf("the first command is %q, expected %q with a configuration", m.Op, opStart)
	}
	c.cfg = *m.Config
	var ok bool
	if c.arm, ok = armNamed(arms, c.cfg.Arm); !ok {
		return nil, fmt.Errorf("arm %q is not known to this process", c.cfg.Arm)
	}
	var r role
	switch c.cfg.Role {
	case roleWorker:
		r = &workerRole{child: c}
	case roleFrontend:
		r = &frontendRole{child: c}
	case roleClient:
		r = &clientRole{child: c}
	case roleAlone:
		r = &aloneRole{child: c}
	default:
		return nil, fmt.Errorf("role %q is not known", c.cfg.Role)
	}
	if over := c.arm.over(); over != "" && c.cfg.Role != roleClient {
		var err error
		if c.id, err = transport.NewIdentity(); err != nil {
			return nil, err
		}
		c.cfg.Settings.Planes = []string{over}
		if c.transports, err = c.cfg.Settings.Transports(c.id, c.log); err != nil {
			return nil, err
		}
	}
	ready, err := r.start(ctx)
	if err != nil {
		return r, err
	}
	ready.Op = opReady
	return r, c.out.Send(ready)
}

func (c *child) do(r role, m message) error {
	switch m.Op {
	case opGo:
		return r.load()
	case opStop, opFinish:
		return r.finish()
	case opBegin:
		if err := c.profile.Begin(c.cfg.Profile); err != nil {
			return err
		}
		c.began = c.usage(r)
		return c.out.Send(message{Op: opBegun})
	case opEnd:
		u := c.usage(r).sub(c.began)
		if err := c.profile.End(); err != nil {
			return err
		}
		return c.out.Send(message{Op: opWindow, Usage: &u})
	case opTotals:
		t, err := r.totals()
		if err != nil {
			return err
		}
		t.RSSPeak, _ = procstat.RSSPeak(procstat.Self)
		return c.out.Send(message{Op: opStopped, Totals: &t})
	}
	return fmt.Errorf("unknown command %q", m.Op)
}

func (c *child) usage(r role) usage {
	u := readUsage()
	r.count(&u)
	return u
}

func (c *child) closeAll(r role) {
	var end func() error
	if r != nil {
		end = r.close
	}
	planebench.CloseChild(c.log, &c.profile, end, c.transports)
}
