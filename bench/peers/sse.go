package peers

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

// SSE is server-sent events over HTTP/1.1: a POST for each response, an event for each record, which carries it in
// base64. Connections are kept alive.
func SSE() planebench.Peer {
	return planebench.Peer{
		Name: "sse", Deliveries: pulled(),
		Worker: func(cfg planebench.PeerConfig, serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker,
			error) {
			w := &sseWorker{cfg: cfg, serve: serve, done: make(chan struct{})}
			w.server = &http.Server{Handler: http.HandlerFunc(w.respond)}
			return w, nil
		},
		Frontend: func(cfg planebench.PeerConfig) (planebench.PeerFrontend, error) {
			idle := cfg.Load.Concurrency
			t := &http.Transport{MaxIdleConns: idle, MaxIdleConnsPerHost: idle, DisableCompression: true}
			return &sseFrontend{transport: t, addresses: map[int]string{}}, nil
		},
	}
}

const (
	sseData = "data: "
	sseEnd  = "event: end\n" // before the data of the end
	sseStop = "\n\n"
)

type sseWorker struct {
	cfg    planebench.PeerConfig
	serve  func([]byte, planebench.PeerWriter) error
	server *http.Server
	wg     sync.WaitGroup
	done   chan struct{}
	once   sync.Once
}

func (w *sseWorker) Listen(ctx context.Context) (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.wg.Go(func() { // ends with the server
		if err := w.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			w.cfg.Log.Error("the HTTP server has ended", "error", err)
		}
	})
	return "http://" + ln.Addr().String(), nil
}

// respond is the goroutine of one response, net/http's own.
func (w *sseWorker) respond(rw http.ResponseWriter, r *http.Request) {
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	q := newQueue()
	if err := w.serve(request, q); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(rw)
	var events []byte
	for {
		frames, last, err := q.take(w.done)
		if err != nil {
			panic(http.ErrAbortHandler) // a return would end the response as if it were whole
		}
		events = events[:0]
		for len(frames) > 0 {
			body, rest, end, ok, err := nextFrame(frames)
			if err != nil || !ok {
				panic(http.ErrAbortHandler)
			}
			frames = rest
			if end {
				events = append(events, sseEnd...)
			}
			events = append(events, sseData...)
			events = base64.StdEncoding.AppendEncode(events, body)
			events = append(events, sseStop...)
		}
		_, err = rw.Write(events)
		if err == nil {
			err = control.Flush()
		}
		if err != nil {
			q.fail(err)
			return
		}
		if last {
			return
		}
	}
}

// Flush does nothing: each record has woken the goroutine of its response.
func (w *sseWorker) Flush() {}

func (w *sseWorker) Close() error {
	w.once.Do(func() { close(w.done) })
	err := w.server.Close()
	w.wg.Wait()
	return err
}

type sseFrontend struct {
	transport *http.Transport

	mu        sync.Mutex
	addresses map[int]string // by worker process
}

func (f *sseFrontend) Connect(_ context.Context, worker int, address string) error {
	f.mu.Lock()
	f.addresses[worker] = address
	f.mu.Unlock()
	return nil
}

// Open returns when the worker process has answered, which it does with its first record, and hands the response's body
// on.
func (f *sseFrontend) Open(ctx context.Context, worker int, request []byte) (planebench.PeerResponse, error) {
	f.mu.Lock()
	address := f.addresses[worker]
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(bytes.Clone(request)))
	if err != nil {
		cancel()
		return nil, err
	}
	res, err := f.transport.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		cancel()
		return nil, errors.Join(fmt.Errorf("the worker process answers %s", res.Status), res.Body.Close())
	}
	return &sseResponse{body: res.Body, cancel: cancel, in: unread{buf: make([]byte, 4<<10)}}, nil
}

func (f *sseFrontend) Close() error {
	f.transport.CloseIdleConnections()
	return nil
}

// sseResponse reads events.
type sseResponse struct {
	body   io.ReadCloser
	cancel context.CancelFunc

	in      unread
	decoded []byte
	ends    []int
	batch   [][]byte
	trailer []byte
	ended   bool
}

func (r *sseResponse) NextBatch(context.Context) ([][]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	for {
		if err := r.parse(); err != nil {
			return nil, err
		}
		switch {
		case len(r.batch) > 0:
			return r.batch, nil
		case r.ended:
			// What follows is the last chunk: read, it lets the connection be used again.
			if _, err := io.Copy(io.Discard, r.body); err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		if err := r.in.fill(r.body); err != nil {
			return nil, err
		}
	}
}

// parse takes the whole events that are there.
func (r *sseResponse) parse() error {
	r.batch, r.ends, r.decoded = r.batch[:0], r.ends[:0], r.decoded[:0]
	for !r.ended {
		event, _, ok := bytes.Cut(r.in.bytes(), []byte(sseStop))
		if !ok {
			break
		}
		r.in.from += len(event) + len(sseStop)
		data, end := bytes.CutPrefix(event, []byte(sseEnd))
		data, ok = bytes.CutPrefix(data, []byte(sseData))
		if !ok {
			return fmt.Errorf("not an event: %q", event)
		}
		var err error
		if end {
			r.ended = true
			r.trailer, err = base64.StdEncoding.AppendDecode(nil, data)
		} else if r.decoded, err = base64.StdEncoding.AppendDecode(r.decoded, data); err == nil {
			r.ends = append(r.ends, len(r.decoded))
		}
		if err != nil {
			return fmt.Errorf("an event: %w", err)
		}
	}
	from := 0
	for _, to := range r.ends {
		r.batch = append(r.batch, r.decoded[from:to])
		from = to
	}
	return nil
}

func (r *sseResponse) Trailer() []byte { return r.trailer }
func (r *sseResponse) Kill()           { r.cancel() }

func (r *sseResponse) Close() error {
	err := r.body.Close()
	r.cancel()
	return err
}
