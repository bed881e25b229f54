package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	natsio "github.com/nats-io/nats.go"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

var _ discovery.Deliverer = (*Deliverer)(nil)

// closeLimit bounds how long Close lets queued requests reach their handlers.
const closeLimit = 2 * time.Second

// Deliverer is a discovery.Deliverer on NATS. Make it with New. Methods may be called concurrently.
type Deliverer struct {
	cfg    Config
	nc     *natsio.Conn
	closed chan struct{} // the connection's last callback has run
	hangUp func()        // cuts dialling, and the connection

	life context.Context // handlers' context; ends with Close
	end  context.CancelFunc

	// up ends when the connection breaks, and then is another one: a request that is under way has lost its reply, and
	// nats.go would let it wait.
	up atomic.Pointer[uptime]

	mu       sync.Mutex
	stopping bool
	micro    *micro // nil until the first Serve
	places   map[string]*place
	wg       sync.WaitGroup // places
	done     chan struct{}  // closed when Close is through
}

// New connects to the first server of the URL that answers. When none does, the error names the URL, the flag and the
// reason, and is discovery.ErrUnavailable: trying again later may help. ctx bounds New only.
func New(ctx context.Context, cfg Config) (*Deliverer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	opts, err := cfg.options()
	if err != nil {
		return nil, err
	}
	d := &Deliverer{cfg: cfg, closed: make(chan struct{}), places: make(map[string]*place), done: make(chan struct{})}
	d.life, d.end = context.WithCancel(context.Background())
	d.up.Store(newUptime())

	dial := newDialer(cfg.DialTimeout)
	d.hangUp = dial.end
	release := context.AfterFunc(ctx, dial.end) // nats.go knows no context
	nc, err := natsio.Connect(cfg.URL, append(append(opts, natsio.SetCustomDialer(dial)), d.callbacks()...)...)
	if !release() && err == nil { // too late by a hair: the connection has been cut
		nc.Close()
		<-d.closed
		err = context.Cause(ctx)
	}
	if err != nil {
		dial.end()
		d.end()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("nats: cannot connect to %s (Config.URL): %w: %w", redact.Address(cfg.URL),
			discovery.ErrUnavailable, redact.Error(err, redact.New(cfg.URL)))
	}
	d.nc = nc
	return d, nil
}

func (d *Deliverer) callbacks() []natsio.Option {
	log := d.cfg.Logger
	return []natsio.Option{
		natsio.DisconnectErrHandler(func(_ *natsio.Conn, err error) {
			d.up.Swap(newUptime()).end()
			if d.life.Err() == nil {
				log.Warn("nats: the connection broke; requests fail until it is back", "err", redact.Error(err))
			}
		}),
		natsio.ReconnectHandler(func(nc *natsio.Conn) {
			log.Info("nats: connected again", "server",
				redact.Address(nc.ConnectedUrl()))
		}),
		natsio.ErrorHandler(func(_ *natsio.Conn, sub *natsio.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("nats: error of the connection", "subject", subject, "err", err)
		}),
		natsio.ClosedHandler(func(*natsio.Conn) { close(d.closed) }),
	}
}

func (d *Deliverer) subject(workerID string) string {
	return "laneway." + d.cfg.Namespace + ".worker." + workerID
}

// Deliver implements discovery.Deliverer.
func (d *Deliverer) Deliver(ctx context.Context, workerID string, req discovery.Request) (discovery.Reply, error) {
	if !discovery.ValidName(workerID) {
		return discovery.Reply{}, fmt.Errorf("nats: worker id %q is not 1 to 128 letters, digits, '-' or '_'", workerID)
	}
	if d.life.Err() != nil {
		return discovery.Reply{}, discovery.ErrClosed
	}
	msg := encodeRequest(d.subject(workerID), req)
	if n, limit := size(msg), int(d.nc.MaxPayload()); n > limit {
		return discovery.Reply{}, &discovery.SizeError{Size: n, Max: limit}
	}
	up := d.up.Load()
	// Asked first because nats.go remembers a request that it could not publish until the connection breaks the next
	// time.
	if !d.nc.IsConnected() {
		return discovery.Reply{}, d.unavailable(natsio.ErrDisconnected)
	}
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	release := context.AfterFunc(up.ctx, cancel)
	defer release()
	answer, err := d.nc.RequestMsgWithContext(rctx, msg)
	switch {
	case err == nil:
		return decodeReply(answer)
	case errors.Is(err, natsio.ErrNoResponders):
		return discovery.Reply{}, discovery.ErrNoResponders
	case ctx.Err() != nil:
		return discovery.Reply{}, context.Cause(ctx)
	case errors.Is(err, natsio.ErrMaxPayload): // the server we have been moved to takes less
		return discovery.Reply{}, &discovery.SizeError{Size: size(msg), Max: int(d.nc.MaxPayload())}
	case d.life.Err() != nil:
		return discovery.Reply{}, discovery.ErrClosed
	case up.ctx.Err() != nil:
		return discovery.Reply{}, d.unavailable(natsio.ErrDisconnected)
	case errors.Is(err, natsio.ErrReconnectBufExceeded), errors.Is(err, natsio.ErrDisconnected),
		errors.Is(err, natsio.ErrConnectionClosed),
		errors.Is(err, natsio.ErrConnectionReconnecting), errors.Is(err, natsio.ErrStaleConnection),
		errors.Is(err, natsio.ErrConnectionDraining):
		return discovery.Reply{}, d.unavailable(err)
	}
	return discovery.Reply{}, fmt.Errorf("nats: deliver to worker %s: %w", workerID, err)
}

// uptime is the time between connecting and the connection's end.
type uptime struct {
	ctx context.Context
	end context.CancelFunc
}

func newUptime() *uptime {
	ctx, cancel := context.WithCancel(context.Background())
	return &uptime{ctx, cancel}
}

func (d *Deliverer) unavailable(cause error) error {
	return fmt.Errorf("%w: %s: %w", discovery.ErrUnavailable, redact.Address(d.cfg.URL), cause)
}

// Close lets requests that are queued reach their handlers for up to 2 s, ends all services and the connection, and
// joins the goroutines. A Deliver that is under way fails with ErrClosed. Idempotent.
func (d *Deliverer) Close() error {
	d.mu.Lock()
	if d.stopping {
		d.mu.Unlock()
		<-d.done
		return nil
	}
	d.stopping = true
	places := make([]*place, 0, len(d.places))
	for _, p := range d.places {
		places = append(places, p)
	}
	d.mu.Unlock()
	defer close(d.done)

	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, p := range places {
		p.begin() // all at once, then wait
	}
	for _, p := range places {
		_ = p.Drain(ctx) // what has not drained by then is cut off
	}
	if len(places) > 0 && d.nc.IsConnected() {
		_ = d.nc.FlushWithContext(ctx) // the last replies
	}
	d.end()
	d.nc.Close()
	d.hangUp()
	<-d.closed
	d.up.Load().end()
	d.wg.Wait()
	return nil
}
