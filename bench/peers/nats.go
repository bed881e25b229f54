package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// NATS is a subject for each response through a NATS server in a process of its own: the frontend subscribes to an
// inbox, the worker publishes each record to it.
func NATS() planebench.Peer {
	return planebench.Peer{
		Name: "nats", Deliveries: pulled(),
		Broker: func(planebench.PeerConfig) (planebench.PeerBroker, error) { return &natsBroker{}, nil },
		Worker: func(cfg planebench.PeerConfig, serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker,
			error) {
			return &natsWorker{cfg: cfg, serve: serve}, nil
		},
		Frontend: func(cfg planebench.PeerConfig) (planebench.PeerFrontend, error) { return newNATSFrontend(cfg) },
	}
}

// natsStart bounds how long the server may take to be there.
const natsStart = 10 * time.Second

type natsBroker struct{ s *server.Server }

func (b *natsBroker) Start(context.Context) (string, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		return "", err
	}
	b.s = s
	s.Start()
	if !s.ReadyForConnections(natsStart) {
		return "", fmt.Errorf("the NATS server is not there after %v", natsStart)
	}
	return s.ClientURL(), nil
}

func (b *natsBroker) Close() error {
	if b.s != nil {
		b.s.Shutdown()
		b.s.WaitForShutdown()
	}
	return nil
}

// natsConnect connects without reconnecting: a connection that is lost must be seen.
func natsConnect(url string, queue int) (*nats.Conn, error) {
	return nats.Connect(url, nats.NoReconnect(), nats.SyncQueueLen(queue))
}

func natsSubject(worker int) string { return fmt.Sprintf("laneway.bench.worker.%d", worker) }

type natsWorker struct {
	cfg   planebench.PeerConfig
	serve func([]byte, planebench.PeerWriter) error
	nc    *nats.Conn
}

// Listen takes requests on the worker process's subject. The address is nothing that anybody dials.
func (w *natsWorker) Listen(context.Context) (string, error) {
	nc, err := natsConnect(w.cfg.Broker, 1)
	if err != nil {
		return "", err
	}
	w.nc = nc
	_, err = nc.Subscribe(natsSubject(w.cfg.Index), func(m *nats.Msg) {
		if err := w.serve(m.Data, &natsWriter{nc: nc, subject: m.Reply}); err != nil {
			w.cfg.Log.Error("a request cannot be served", "error", err)
		}
	})
	if err == nil {
		err = nc.Flush() // the server knows of the subscription
	}
	return natsSubject(w.cfg.Index), err
}

// Flush does nothing: the client's own goroutine writes what was published.
func (w *natsWorker) Flush() {}

func (w *natsWorker) Close() error {
	if w.nc != nil {
		w.nc.Close()
	}
	return nil
}

// natsWriter publishes each record. There is no flow control: a server or a frontend that is slow drops, which the
// checks find.
type natsWriter struct {
	nc      *nats.Conn
	subject string
	buf     []byte

	mu  sync.Mutex
	err error
}

func (w *natsWriter) publish(body []byte, flag uint32) error {
	w.buf = appendFrame(w.buf[:0], body, flag)
	err := w.nc.Publish(w.subject, w.buf) // which copies
	if err != nil {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return err
}

func (w *natsWriter) TryPut(rec []byte) error          { return w.publish(rec, 0) }
func (w *natsWriter) PutComplete(trailer []byte) error { return w.publish(trailer, endBit) }

// OnWritable never has anything to say: TryPut always has room.
func (w *natsWriter) OnWritable(func()) {}

func (w *natsWriter) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

type natsFrontend struct {
	nc *nats.Conn
}

// newNATSFrontend connects. A subscription has room for one whole response: nats.go's default of 512 KiB each is 4 GiB
// at 8,192.
func newNATSFrontend(cfg planebench.PeerConfig) (*natsFrontend, error) {
	nc, err := natsConnect(cfg.Broker, cfg.Load.OSL+1)
	if err != nil {
		return nil, err
	}
	return &natsFrontend{nc: nc}, nil
}

// Connect has nothing to do: all worker processes are behind the one server.
func (f *natsFrontend) Connect(context.Context, int, string) error { return nil }

func (f *natsFrontend) Open(_ context.Context, worker int, request []byte) (planebench.PeerResponse, error) {
	inbox := f.nc.NewInbox()
	sub, err := f.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	if err := f.nc.PublishRequest(natsSubject(worker), inbox, request); err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	return &natsResponse{sub: sub, batch: make([][]byte, 1)}, nil
}

func (f *natsFrontend) Close() error {
	f.nc.Close()
	return nil
}

type natsResponse struct {
	sub     *nats.Subscription
	batch   [][]byte
	trailer []byte
}

// NextBatch returns one record: a message at a time is what nats.go hands out.
func (r *natsResponse) NextBatch(ctx context.Context) ([][]byte, error) {
	m, err := r.sub.NextMsgWithContext(ctx)
	if err != nil {
		return nil, err
	}
	body, rest, end, ok, err := nextFrame(m.Data)
	switch {
	case err != nil || !ok || len(rest) > 0:
		return nil, fmt.Errorf("a message of %d bytes is not a frame", len(m.Data))
	case end:
		r.trailer = body
		return nil, io.EOF
	}
	r.batch[0] = body
	return r.batch, nil
}

func (r *natsResponse) Trailer() []byte { return r.trailer }
func (r *natsResponse) Kill()           { _ = r.sub.Unsubscribe() }

// Close takes the subscription back; one that was killed, or whose connection has ended, has none any more.
func (r *natsResponse) Close() error {
	if err := r.sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrBadSubscription) &&
		!errors.Is(err, nats.ErrConnectionClosed) {
		return err
	}
	return nil
}
