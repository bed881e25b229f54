package streambench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// start is the body of the operation start.
type start struct {
	Terms [][]byte `json:"terms"`
	Items []int    `json:"items"` // of each stream
	Size  int      `json:"size"`  // bytes of an item
}

// settings are the defaults of the programs' plane settings.
func settings(plane string, lanes int) planeflags.Settings {
	s := transportbench.Spec{Plane: plane}.Settings()
	s.Lanes, s.ServerEndpoints, s.StreamWindow, s.Urgent = lanes, transportbench.Endpoints, 64<<10, true
	s.KeepAlive, s.Idle, s.ActivePing, s.Resume, s.BatchGap = 5*time.Second, 15*time.Second, time.Second,
		10*time.Second, 2*time.Millisecond
	return s
}

// NewHandler makes the server's side of a control connection: a worker.
func NewHandler(host string, log *slog.Logger) transportbench.Handler {
	return &handler{host: host, log: log}
}

type handler struct {
	host   string
	log    *slog.Logger
	tr     transport.Transport
	worker *responseplane.Worker
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex
	err error
}

func (h *handler) Handle(ctx context.Context, op string, body []byte) (any, error) {
	switch op {
	case "open":
		return transportbench.With(body, func(plane string) (any, error) { return h.open(ctx, plane) })
	case "start":
		return transportbench.With(body, func(s start) (any, error) { return nil, h.start(ctx, s) })
	case "written":
		h.wg.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		return nil, h.err
	case "close":
		return nil, h.Close()
	}
	return nil, fmt.Errorf("%q is not known", op)
}

func (h *handler) open(ctx context.Context, plane string) (d responseplane.Descriptor, err error) {
	if h.worker != nil {
		return d, errors.New("something is open")
	}
	id, err := transport.NewIdentity()
	if err != nil {
		return d, err
	}
	s := settings(plane, 1)
	s.BindAddr = net.JoinHostPort(h.host, "0")
	trs, err := s.Transports(id, h.log)
	if err != nil {
		return d, err
	}
	h.tr = trs[0]
	if h.worker, err = responseplane.NewWorker(s.Worker(id, trs, h.log)); err != nil {
		return d, errors.Join(err, h.Close())
	}
	if err := h.worker.Listen(ctx); err != nil {
		return d, errors.Join(err, h.Close())
	}
	return h.worker.Descriptor(), nil
}

func (h *handler) start(ctx context.Context, s start) error {
	if h.worker == nil || len(s.Terms) != len(s.Items) || s.Size < itemHead {
		return fmt.Errorf("%d streams, %d counts and items of %d bytes make no sense, or nothing is open", len(s.Terms),
			len(s.Items), s.Size)
	}
	writers := make([]*responseplane.Writer, len(s.Terms))
	for i, t := range s.Terms {
		var err error
		if writers[i], err = h.worker.Attach(t); err != nil {
			return err
		}
	}
	h.mu.Lock()
	h.err = nil
	h.mu.Unlock()
	ctx, h.cancel = context.WithCancel(ctx)
	for i, w := range writers {
		h.wg.Go(func() { // ends with its items, its response or the session
			if err := write(ctx, w, i, s.Items[i], s.Size); err != nil {
				h.mu.Lock()
				h.err = errors.Join(h.err, err)
				h.mu.Unlock()
			}
		})
	}
	return nil
}

// itemHead is what an item begins with.
const itemHead = 8

// flushEvery is after how many bytes of items a stream has its lane written: as an engine that makes one pass after the
// other does.
const flushEvery = 16 << 10

func write(ctx context.Context, w *responseplane.Writer, stream, items, size int) error {
	item := make([]byte, size)
	binary.BigEndian.PutUint32(item, uint32(stream))
	queued := 0
	for n := range items {
		binary.BigEndian.PutUint32(item[4:], uint32(n))
		if err := w.Put(ctx, item); err != nil {
			return err
		}
		if queued += size; queued >= flushEvery {
			w.Flush()
			queued = 0
		}
	}
	return w.Complete(nil)
}

func (h *handler) Close() error {
	if h.cancel != nil {
		h.cancel()
		h.cancel = nil
	}
	var errs []error
	if h.worker != nil {
		errs = append(errs, h.worker.Close())
	}
	h.wg.Wait()
	if h.tr != nil {
		errs = append(errs, h.tr.Close())
	}
	h.worker, h.tr = nil, nil
	return errors.Join(errs...)
}
