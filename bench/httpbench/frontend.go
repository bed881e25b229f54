package httpbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/frontend"
)

// reachTimeout bounds how long a frontend tries to reach the workers.
const reachTimeout = 20 * time.Second

// backend is what an arm puts behind the HTTP side.
type backend interface {
	frontend.Backend
	planes() map[string]uint64 // records by plane, nil when nobody counts them
	Close() error
}

// frontendRole is the frontend process.
type frontendRole struct {
	*child
	backend backend
	local   *inProcess // the backend, when the engines are here
	server  *frontend.Server
	metrics *prometheus.Registry
	idle    int64 // resident set before the load
	stop    context.CancelFunc
	wg      sync.WaitGroup
	served  error
}

func (r *frontendRole) start(ctx context.Context) (message, error) {
	ctx, r.stop = context.WithCancel(ctx)
	reach, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := r.connect(reach); err != nil {
		return message{}, err
	}
	r.metrics = prometheus.NewRegistry()
	var err error
	r.server, err = frontend.New(frontend.Config{Backend: r.backend, Logger: r.log, Metrics: r.metrics,
		OutPath: frontend.OutPath(r.cfg.OutPath)})
	if err != nil {
		return message{}, err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return message{}, err
	}
	r.wg.Go(func() { r.served = r.server.Serve(ln) }) // ends with the server
	path, _ := r.server.OutPath()
	return message{URL: "http://" + ln.Addr().String(), OutPath: string(path)}, nil
}

func (r *frontendRole) connect(ctx context.Context) error {
	switch {
	case r.arm.inProcess():
		b, err := newInProcess(r.cfg)
		if err != nil {
			return err
		}
		r.local, r.backend = b, b
	case r.arm.Peer != nil:
		b, err := newPeerBackend(ctx, r.child)
		if err != nil {
			return err
		}
		r.backend = b
	default:
		b, err := newLaneway(ctx, r.child)
		if err != nil {
			return err
		}
		r.backend = b
	}
	return nil
}

// fullShare of the responses must be open for the load to count as full: at any time some end and are opened again.
const fullShare = 0.95

// load says opFull when the responses are open.
func (r *frontendRole) load() error {
	r.idle = rss()
	ctx, stop := context.WithCancel(context.Background())
	end := r.stop
	r.stop = func() { stop(); end() }
	r.wg.Go(func() { // ends when they are open, or with the process
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for float64(r.server.Open()) < fullShare*float64(r.cfg.Load.Streams) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		_ = r.out.Send(message{Op: opFull}) // a parent that is gone ends the process by its standard input
	})
	return nil
}

func (r *frontendRole) finish() error {
	if r.local != nil {
		r.local.engines.stopping.Store(true)
	}
	return nil
}

// tokensMetric counts what the HTTP side took from its backend, the same for all arms.
const tokensMetric = "laneway_frontend_output_tokens_total"

// tokens reads it.
func (r *frontendRole) tokens() (sum uint64) {
	families, err := r.metrics.Gather()
	if err != nil {
		r.log.Error("metrics", "error", err)
		return 0
	}
	for _, f := range families {
		if f.GetName() == tokensMetric {
			for _, m := range f.GetMetric() {
				sum += uint64(m.GetCounter().GetValue())
			}
		}
	}
	return sum
}

func (r *frontendRole) count(u *usage) {
	u.Tokens, u.RSSIdle = r.tokens(), r.idle
	if r.local != nil {
		r.local.engines.count(u)
	}
}

func (r *frontendRole) totals() (totals, error) {
	t := totals{Tokens: r.tokens(), Planes: r.backend.planes(), Open: r.server.Open()}
	if r.local != nil {
		t.Made = r.local.engines.made.Load()
	}
	return t, nil
}

func (r *frontendRole) close() error {
	if r.stop != nil {
		r.stop()
	}
	var errs []error
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	if r.backend != nil {
		errs = append(errs, r.backend.Close())
	}
	r.wg.Wait()
	if r.served != nil {
		errs = append(errs, fmt.Errorf("the HTTP server has ended: %w", r.served))
	}
	return errors.Join(errs...)
}
