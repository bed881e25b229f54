package httpbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/engine/mock"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/responseplane"
)

// workerRole is a worker process.
type workerRole struct {
	*child
	engines *engines
	flush   func()
	undo    []func() error // in the order of construction
}

func (r *workerRole) start(ctx context.Context) (message, error) {
	if r.arm.inProcess() {
		return message{}, errors.New("the arm has no worker processes")
	}
	// The plane is there before the first request comes, and the engines before the plane listens.
	var err error
	if r.engines, err = newEngines(r.cfg, func(int) { r.flush() }); err != nil {
		return message{}, err
	}
	var p *place
	if r.arm.Peer != nil {
		p, err = r.listenPeer(ctx)
	} else {
		p, err = r.listenLaneway(ctx)
	}
	return message{Place: p}, err
}

// listenPeer opens the peer's writing side.
func (r *workerRole) listenPeer(ctx context.Context) (*place, error) {
	w, err := r.arm.Peer.Worker(r.peerConfig(), func(request []byte, w planebench.PeerWriter) error {
		return r.engines.submit(request, func(int) mock.Writer { return peerWriter{w} })
	})
	if err != nil {
		return nil, err
	}
	r.flush, r.undo = w.Flush, append(r.undo, w.Close)
	address, err := w.Listen(ctx)
	return &place{Address: address}, err
}

// listenLaneway opens Laneway's writing side, and the request path.
func (r *workerRole) listenLaneway(ctx context.Context) (*place, error) {
	cfg := r.cfg.Settings.Worker(r.id, r.transports, r.log)
	cfg.Name = workerID(r.cfg.Index)
	w, err := responseplane.NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	r.flush, r.undo = w.Flush, append(r.undo, w.Close)
	if err := w.Listen(ctx); err != nil {
		return nil, err
	}
	path, err := listenPath(ctx, r.log)
	if err != nil {
		return nil, err
	}
	r.undo = append(r.undo, path.Close)
	d := w.Descriptor()
	_, err = w.Serve(ctx, path, discovery.Worker{ID: cfg.Name, Models: []string{model}, Node: d},
		func(req discovery.Request, out *responseplane.Writer) discovery.Reply {
			if err := r.engines.submit(req.Payload, func(int) mock.Writer { return out }); err != nil {
				return discovery.Reply{Answer: discovery.BadRequest, Reason: err.Error()}
			}
			return discovery.Reply{Answer: discovery.Accepted}
		})
	return &place{Address: path.address(), Descriptor: &d}, err
}

// workerID names a worker process, which is one worker to the frontend: its engines share what comes.
func workerID(i int) string { return fmt.Sprintf("worker-%d", i) }

func (r *workerRole) load() error { return nil }

func (r *workerRole) finish() error {
	r.engines.stopping.Store(true)
	return nil
}

func (r *workerRole) count(u *usage) { r.engines.count(u) }

func (r *workerRole) totals() (totals, error) { return totals{Made: r.engines.made.Load()}, nil }

func (r *workerRole) close() error {
	var errs []error
	if r.engines != nil { // before the plane: they write to it
		errs = append(errs, r.engines.close())
	}
	for i := len(r.undo) - 1; i >= 0; i-- {
		errs = append(errs, r.undo[i]())
	}
	return errors.Join(errs...)
}
