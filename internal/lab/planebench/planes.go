package planebench

import (
	"context"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// Baselines are the bare planes that can be run beside ours.
func Baselines() []string {
	var names []string
	for _, m := range refplane.Modes() {
		names = append(names, string(m))
	}
	return names
}

// response is what a slot needs of a response: a *responseplane.Response or a *refplane.Response.
type response interface {
	Terms() []byte
	NextBatch(ctx context.Context) ([][]byte, error)
	OnRecords(func(records [][]byte, err error) bool)
	Trailer() []byte
	Stop()
	Kill()
	Close() error
}

// recordWriter is what an engine needs of one.
type recordWriter interface {
	TryPut(rec []byte) error
	PutComplete(trailer []byte) error
	OnWritable(func())
	Err() error
	StopRequested() bool
}

// frontPlane is the consuming side of ours or of a baseline.
type frontPlane interface {
	add(ctx context.Context, n discovery.Node) error
	mint(ctx context.Context, id transport.NodeID) (response, error)
	Stats() responseplane.Stats
	Close() error
}

// workPlane is the writing side.
type workPlane interface {
	Listen(ctx context.Context) error
	Descriptor() discovery.Node
	attach(terms []byte) (recordWriter, error)
	Flush()
	Stats() responseplane.Stats
	Close() error
}

type ownFront struct{ *responseplane.Frontend }

func (f ownFront) add(ctx context.Context, n discovery.Node) error {
	id, err := f.AddPeer(n)
	if err != nil {
		return err
	}
	return f.AwaitPeer(ctx, id)
}

func (f ownFront) mint(ctx context.Context, id transport.NodeID) (response, error) {
	r, err := f.Mint(ctx, id, responseplane.MintOptions{})
	if err != nil {
		return nil, err // not r: a nil *Response in an interface is not nil
	}
	return r, nil
}

type ownWorker struct{ *responseplane.Worker }

func (w ownWorker) attach(terms []byte) (recordWriter, error) {
	out, err := w.Attach(terms)
	if err != nil {
		return nil, err
	}
	return out, nil
}

type refFront struct{ *refplane.Frontend }

func (f refFront) add(ctx context.Context, n discovery.Node) error { return f.AddPeer(ctx, n) }

func (f refFront) mint(_ context.Context, id transport.NodeID) (response, error) {
	r, err := f.Mint(id.String())
	if err != nil {
		return nil, err
	}
	return r, nil
}

type refWorker struct{ *refplane.Worker }

func (w refWorker) attach(terms []byte) (recordWriter, error) {
	out, err := w.Attach(terms)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// frontPlane makes the consuming side that the child's arm asks for.
func (c *child) frontPlane() (frontPlane, error) {
	if c.peer != nil {
		f, err := c.peer.Frontend(c.peerConfig())
		if err != nil {
			return nil, err
		}
		return &peerFront{PeerFrontend: f}, nil
	}
	if c.cfg.Baseline != "" {
		f, err := refplane.NewFrontend(c.refConfig())
		if err != nil {
			return nil, err
		}
		return refFront{f}, nil
	}
	cfg := c.cfg.Settings.Frontend(c.id, c.transports, c.log)
	cfg.Name = c.cfg.Role
	f, err := responseplane.NewFrontend(cfg)
	if err != nil {
		return nil, err
	}
	return ownFront{f}, nil
}

// workPlane makes the writing side. servePeer takes the requests that come the way of a peer.
func (c *child) workPlane(servePeer func([]byte, PeerWriter) error) (workPlane, error) {
	if c.peer != nil {
		w, err := c.peer.Worker(c.peerConfig(), servePeer)
		if err != nil {
			return nil, err
		}
		return &peerWorker{PeerWorker: w, id: c.id}, nil
	}
	if c.cfg.Baseline != "" {
		w, err := refplane.NewWorker(c.refConfig())
		if err != nil {
			return nil, err
		}
		return refWorker{w}, nil
	}
	cfg := c.cfg.Settings.Worker(c.id, c.transports, c.log)
	cfg.Name = c.cfg.Role
	w, err := responseplane.NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	return ownWorker{w}, nil
}

// refConfig is the baseline's. A child has one transport.
func (c *child) refConfig() refplane.Config {
	cfg := refplane.Config{
		Mode: refplane.Mode(c.cfg.Baseline), Transport: c.transports[0], Identity: c.id, Name: c.cfg.Role,
		BindAddr: c.cfg.Settings.BindAddr, Logger: c.log,
	}
	if cfg.Mode == refplane.Batched {
		cfg.Interval = c.cfg.BaselineInterval
	}
	if c.cfg.Role == roleFrontend {
		cfg.BindAddr = "" // a fixed port is the worker's
	}
	return cfg
}
