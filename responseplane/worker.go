package responseplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/transport"
)

// Worker is one process's side of the plane: it listens for frontends and turns terms into Writers. Methods may be
// called concurrently.
type Worker struct {
	cfg  WorkerConfig
	send *mux.WorkerNode

	mu   sync.Mutex
	desc Descriptor
}

// NewWorker makes a Worker. It binds nothing before Listen.
func NewWorker(cfg WorkerConfig) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	send, err := mux.NewWorkerNode(cfg.mux())
	if err != nil {
		return nil, err
	}
	return &Worker{cfg: cfg, send: send}, nil
}

// Listen binds the endpoints of every plane and begins to accept. Call it once; then Descriptor is whole.
func (w *Worker) Listen(ctx context.Context) error {
	desc := Descriptor{ID: w.cfg.Identity.ID.String(), Name: w.cfg.Name, WireMin: mux.WireMin, WireMax: mux.WireMax}
	var bound []transport.Listener
	served := false
	defer func() {
		for _, ln := range bound {
			if !served { // all planes or none
				_ = ln.Close()
			}
		}
	}()
	for _, t := range w.cfg.Transports {
		ln, err := t.Listen(ctx, w.cfg.BindAddr, w.cfg.ServerEndpoints)
		if err != nil {
			return fmt.Errorf("responseplane: listen on plane %s: %w", t.Plane(), err)
		}
		bound = append(bound, ln)
		plane := discovery.Plane{Name: t.Plane()}
		for _, a := range ln.Endpoints() {
			address, err := w.advertised(a)
			if err != nil {
				return err
			}
			if err := transport.CheckAddress(address); err != nil {
				return fmt.Errorf("responseplane: what plane %s would advertise for %s cannot be used: %w", t.Plane(),
					a, err)
			}
			if transport.IsLoopback(address) {
				desc.Network = transport.LocalNetwork()
			}
			plane.Endpoints = append(plane.Endpoints, address)
		}
		desc.Planes = append(desc.Planes, plane)
	}
	if desc.Network != "" {
		w.cfg.Logger.Info("a loopback address is advertised: only frontends on this host, in this network namespace, " +
			"can reach this worker")
	}
	w.mu.Lock()
	w.desc = desc
	w.mu.Unlock()
	served = true
	for i, ln := range bound {
		if err := w.send.Serve(ln); err != nil { // closed meanwhile
			for _, rest := range bound[i:] {
				_ = rest.Close()
			}
			return err
		}
	}
	return nil
}

// advertised is the address that frontends dial for a bound one.
func (w *Worker) advertised(a net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return "", fmt.Errorf("responseplane: endpoint %s: %w", a, err)
	}
	if w.cfg.AdvertiseAddr != "" {
		return net.JoinHostPort(strings.Trim(w.cfg.AdvertiseAddr, "[]"), port), nil
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = localAddress(); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// localAddress is the first global unicast address of this machine, IPv4 before IPv6, else loopback.
func localAddress() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("responseplane: find an address to advertise (or set WorkerConfig.AdvertiseAddr): %w",
			err)
	}
	six, loop := "", ""
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		switch ip := n.IP; {
		case ip.IsLoopback():
			if loop == "" {
				loop = ip.String()
			}
		case !ip.IsGlobalUnicast():
		case ip.To4() != nil:
			return ip.String(), nil
		case six == "":
			six = ip.String()
		}
	}
	if six != "" {
		return six, nil
	}
	if loop != "" {
		return loop, nil
	}
	return "", errors.New("responseplane: this machine has no address to advertise; set WorkerConfig.AdvertiseAddr")
}

// Descriptor is this process's record; it is whole after Listen.
func (w *Worker) Descriptor() Descriptor {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.desc
}

// Attach opens the response that terms name. It fails with an *Error that says whether the terms were stale, of a
// version that is not read here, or refused because the process is busy or draining; or with ErrClosed.
func (w *Worker) Attach(terms []byte) (*Writer, error) {
	out, err := w.send.Attach(terms)
	if err != nil {
		return nil, w.asAttach(err)
	}
	return &Writer{out: out, w: w}, nil
}

// Claim opens the response that open terms name: one round trip on the lane to the frontend. It fails as Attach does,
// and with ctx's error.
func (w *Worker) Claim(ctx context.Context, terms []byte) (*Writer, error) {
	out, err := w.send.Claim(ctx, terms)
	if err != nil {
		if isContext(err) {
			return nil, err
		}
		return nil, w.asAttach(err)
	}
	return &Writer{out: out, w: w}, nil
}

func (w *Worker) asAttach(err error) error {
	code := CodeBadRequest
	switch {
	case errors.Is(err, mux.ErrClosed):
		return err
	case errors.Is(err, mux.ErrBusy):
		code = CodeBusy
	case errors.Is(err, mux.ErrDraining):
		code = CodeDraining
	case errors.Is(err, mux.ErrTermsVersion):
		code = CodeUnsupported
	case errors.Is(err, mux.ErrStaleTerms), errors.Is(err, mux.ErrNoLink):
		code = CodeNoWorker
	}
	return refusal(code, "", w.cfg.Identity.ID, err.Error(), err)
}

// Handler takes a request and its Writer. It must not block: it hands both to the engine and answers. A reply other
// than Accepted abandons the Writer.
type Handler func(req discovery.Request, w *Writer) discovery.Reply

// Serve registers one worker at the deliverer: each request is attached and given to h, whose reply is the
// acknowledgement. Terms that cannot be used are answered without h.
func (w *Worker) Serve(ctx context.Context, d discovery.Deliverer, rec discovery.Worker, h Handler) (discovery.Service,
	error) {
	return d.Serve(ctx, rec, func(_ context.Context, req discovery.Request) discovery.Reply {
		out, err := w.Attach(req.Terms)
		if err != nil {
			return discovery.Reply{Answer: answerFor(err), Reason: err.Error()}
		}
		out.worker = rec.ID
		reply := h(req, out)
		if reply.Answer != discovery.Accepted {
			out.out.Abandon()
		}
		return reply
	})
}

func answerFor(err error) discovery.Answer {
	var e *Error
	if !errors.As(err, &e) {
		return discovery.Draining // closed
	}
	switch e.Code {
	case CodeBusy:
		return discovery.Busy
	case CodeDraining:
		return discovery.Draining
	case CodeUnsupported:
		return discovery.Unsupported
	case CodeNoWorker:
		return discovery.Stale
	}
	return discovery.BadRequest
}

// Flush has what every lane holds written: the end of an engine's pass. What all engines of the process have Put for
// one frontend goes out in one write.
func (w *Worker) Flush() { w.send.Flush() }

// Stats is a snapshot of the plane's counters.
func (w *Worker) Stats() Stats { return w.send.Stats() }

// Drain refuses new terms, tells the frontends, and waits until every response has ended and its end was received. The
// responses of a frontend that is dead are kept for 15 s after its last lane, in case that it only lost its lanes, and
// Drain waits for them, too; ctx is the bound.
func (w *Worker) Drain(ctx context.Context) error { return w.send.Drain(ctx) }

// Close ends what is open as lost, closes lanes and listeners and joins every goroutine. Idempotent.
func (w *Worker) Close() error { return w.send.Close() }

// Stats are the plane's counters; promplane exports them.
type Stats = mux.Stats

// Takeovers count how often lanes got another connection for one reason.
type Takeovers = mux.Takeovers

// TakeoverBuckets are the upper bounds of the buckets of Takeovers; the last bucket has none.
func TakeoverBuckets() []time.Duration { return mux.TakeoverBuckets() }

// LaneStats describes one lane.
type LaneStats = mux.LaneStats
