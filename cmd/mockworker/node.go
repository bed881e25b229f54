package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// node is what the process needs of what carries its tokens: the response plane, or a reference arm.
type node interface {
	Listen(ctx context.Context) error
	Descriptor() responseplane.Descriptor
	Flush()
	Stats() responseplane.Stats
	// Drain waits until every response has ended and its end is on its way.
	Drain(ctx context.Context) error
	Close() error
	// serve has take called for each request to a worker.
	serve(ctx context.Context, d discovery.Deliverer, rec discovery.Worker, take taking) (discovery.Service, error)
}

// taking takes a request with the writer of its response.
type taking func(req discovery.Request, w mock.Writer) discovery.Reply

// newNode makes what --response-plane names.
func (p *process) newNode(id *transport.Identity) (node, error) {
	if arm, ok := p.s.plane.Arm(); ok {
		if err := checkArmAddress(p.s.plane); err != nil {
			return nil, err
		}
		w, err := refplane.NewWorker(p.s.plane.Reference(arm, id, p.transports[0], p.s.name, p.log))
		if err != nil {
			return nil, err
		}
		return refNode{w}, nil
	}
	cfg := p.s.plane.Worker(id, p.transports, p.log)
	cfg.Name = p.s.name
	w, err := responseplane.NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	return planeNode{w}, nil
}

// planeNode is the response plane's worker.
type planeNode struct{ *responseplane.Worker }

func (n planeNode) serve(ctx context.Context, d discovery.Deliverer, rec discovery.Worker,
	take taking) (discovery.Service, error) {
	return n.Serve(ctx, d, rec,
		func(req discovery.Request, w *responseplane.Writer) discovery.Reply { return take(req, w) })
}

// refNode is a reference arm's.
type refNode struct{ *refplane.Worker }

func (n refNode) serve(ctx context.Context, d discovery.Deliverer, rec discovery.Worker,
	take taking) (discovery.Service, error) {
	return d.Serve(ctx, rec, func(_ context.Context, req discovery.Request) discovery.Reply {
		w, err := n.Attach(req.Terms)
		if err != nil {
			answer := discovery.BadRequest
			if e, ok := errors.AsType[*responseplane.Error](err); ok && e.Code == responseplane.CodeNoWorker {
				answer = discovery.Stale
			}
			return discovery.Reply{Answer: answer, Reason: err.Error()}
		}
		reply := take(req, w)
		if reply.Answer != discovery.Accepted {
			w.Abandon()
		}
		return reply
	})
}

// checkArmAddress refuses an arm that would tell frontends no address: it does not look for one.
func checkArmAddress(s planeflags.Settings) error {
	host, _, err := net.SplitHostPort(s.BindAddr)
	if ip := net.ParseIP(host); s.AdvertiseAddr == "" && err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("--bind-addr %s with --response-plane %s: a reference arm does not look for an address of "+
			"this host; bind one, or say it with --advertise-addr", s.BindAddr, s.Planes[0])
	}
	return nil
}
