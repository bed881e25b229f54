package frontend

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
	"github.com/laneway-ai/laneway/internal/frontend/outpath"
)

// Limits that are not worth a setting.
const (
	modelsFresh = 250 * time.Millisecond // how long the list of models may be remembered
	// the same where a new one matters, /v1/models and a model that is not in it: neither may ask for each request
	missFresh = 10 * time.Millisecond
	cutGrace  = 2 * time.Second // how long responses that were cut have to say so to their clients
	// A connection of HTTP/2 that is silent for http2Silence is asked whether it is alive: its streams may wait for
	// tokens for minutes.
	http2Silence = 30 * time.Second
)

var (
	// errCut is the cause of the request contexts that Drain and Close end.
	errCut = errors.New("frontend: the frontend is shutting down")
	// errLeft is the cause of those whose client was seen to leave by its connection's watch.
	errLeft = errors.New("frontend: the client has left")
)

// Server serves the OpenAI API.
type Server struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	http    *http.Server
	conns   *conns
	keeper  *keeper
	batches outpath.Batches
	hangups *outpath.Hangups      // nil where there are none
	noRing  atomic.Pointer[error] // why there are no batches though they are wanted
	start   time.Time
	cut     context.CancelCauseFunc // ends every request's context

	mu       sync.Mutex
	open     int           // generation requests that are being served
	draining bool          // new ones are refused
	idle     chan struct{} // closed once draining and open == 0

	modelsMu sync.Mutex
	models   []string
	modelsAt time.Time
}

// New checks cfg, finds the out path and registers the metrics. OutRing where there is none is ErrNoRing. Close must be
// called.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	clients := &conns{max: cfg.MaxConnections, files: cfg.Files}
	m, err := newMetrics(cfg.Metrics, clients)
	if err != nil {
		return nil, err
	}
	base, cut := context.WithCancelCause(context.Background())
	s := &Server{cfg: cfg, log: cfg.Logger, metrics: m, start: time.Now(), cut: cut, idle: make(chan struct{})}
	if err := s.chooseOutPath(); err != nil {
		cut(nil)
		return nil, err
	}
	if s.hangups, err = outpath.NewHangups(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		s.log.Warn("a client that leaves is not noticed while bytes of it lie unread", "error", err)
	}
	s.keeper = newKeeper(cfg.KeepAlive)
	s.conns = clients
	s.http = &http.Server{
		Handler:           s,
		Protocols:         new(http.Protocols),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		// No ReadTimeout and no WriteTimeout: bodies and writes have deadlines of their own, a stream may last.
		MaxHeaderBytes: cfg.MaxHeaderBytes + headerSlack,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: cfg.MaxConcurrentStreams, SendPingTimeout: http2Silence,
			PingTimeout: cfg.WriteTimeout, WriteByteTimeout: cfg.WriteTimeout},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return clients.enter(outpath.ConnContext(ctx, c), c)
		},
		ConnState:   clients.state,
		BaseContext: func(net.Listener) context.Context { return base },
		// a peer's doing: TLS to a plain port, resets
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(!cfg.NoHTTP2)
	s.http.Protocols.SetUnencryptedHTTP2(!cfg.NoHTTP2)
	return s, nil
}

// Serve answers on l until Drain or Close; it then returns nil. It closes l.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(s.wrap(l)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

// wrap has l's connections watched, and written to as OutPath says, and TLS over that.
func (s *Server) wrap(l net.Listener) net.Listener {
	l = outpath.Listen(l, s.hangups)
	if s.cfg.TLS == nil {
		return l
	}
	t := s.cfg.TLS.Clone()
	if len(t.NextProtos) == 0 {
		t.NextProtos = []string{"h2", "http/1.1"}
	}
	if s.cfg.NoHTTP2 {
		t.NextProtos = slices.DeleteFunc(t.NextProtos, func(p string) bool { return p == "h2" })
	}
	return tls.NewListener(l, t)
}

// Ready is nil when a request would be served.
func (s *Server) Ready() error {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if draining {
		return errors.New("the frontend is draining")
	}
	return s.cfg.Backend.Ready()
}

// Open is the number of generation requests that are being served.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Refuse turns new requests away (503) from now on; the open ones go on.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining = true
	if s.open == 0 {
		close(s.idle)
	}
}

// Drain refuses new requests, waits for the open ones until ctx ends, then ends what is left with an error event,
// closes the listener and all connections. It returns how many responses it had to cut.
func (s *Server) Drain(ctx context.Context) (cut int, err error) {
	s.Refuse()
	s.http.SetKeepAlivesEnabled(false)
	select {
	case <-s.idle:
	case <-ctx.Done():
		cut = s.Open()
		s.cut(errCut)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
	defer cancel()
	select {
	case <-s.idle:
	case <-end.Done():
	}
	if err := s.http.Shutdown(end); err != nil {
		err = errors.Join(err, s.http.Close())
		if !errors.Is(err, context.DeadlineExceeded) {
			return cut, err
		}
	}
	return cut, nil
}

// Close ends everything at once and waits for the requests' goroutines, except those whose client takes no bytes.
// Idempotent.
func (s *Server) Close() error {
	s.Refuse()
	s.cut(errCut)
	err := s.http.Close()
	select {
	case <-s.idle:
	case <-time.After(cutGrace):
	}
	s.keeper.close()
	_ = s.batches.Close()
	_ = s.hangups.Close()
	return err
}

// admit takes a place for a request, or says why there is none. release gives it back.
func (s *Server) admit() (e *openai.Error, label string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		e, label = s.unavailable("the frontend is shutting down: try another one")
	case s.cfg.MaxOpenRequests > 0 && s.open >= s.cfg.MaxOpenRequests:
		e, label = s.overloaded(fmt.Sprintf("the frontend serves %d requests, as many as it may: try again later",
			s.open))
	default:
		s.open++
	}
	return e, label
}

func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.draining && s.open == 0 {
		close(s.idle)
	}
}

// knownModels is the backend's list, at most so old; asking for 512 workers' models costs more than a request should.
func (s *Server) knownModels(fresh time.Duration) []string {
	s.modelsMu.Lock()
	defer s.modelsMu.Unlock()
	if now := time.Now(); now.Sub(s.modelsAt) > fresh {
		s.models, s.modelsAt = s.cfg.Backend.Models(), now
	}
	return s.models
}

func (s *Server) checkModel(model string) (*openai.Error, string) {
	has := func(list []string) bool { _, ok := slices.BinarySearch(list, model); return ok }
	if has(s.knownModels(modelsFresh)) {
		return nil, ""
	}
	list := s.knownModels(missFresh)
	switch {
	case has(list):
		return nil, ""
	case len(list) == 0:
		return s.unavailable("no worker is there yet: try again later")
	}
	return &openai.Error{Status: http.StatusNotFound, Type: openai.TypeInvalidRequest, Param: "model",
			Code:    "model_not_found",
			Message: fmt.Sprintf("model %q is not served here: GET /v1/models lists those that are", clip(model))},
		labelNotFound
}

// clip shortens what a client sent, for messages and logs.
func clip(s string) string {
	if len(s) > 128 {
		return s[:128] + "..."
	}
	return s
}

// names are how a request is called.
type names struct {
	own string // this frontend's, unique
	// the client's X-Request-Id, which others may have too; empty when it has none that is fit for headers, logs and
	// payloads
	client string
}

// shown is the X-Request-Id of the answer.
func (n names) shown() string { return cmp.Or(n.client, n.own) }

func newNames(h http.Header) names {
	n := names{own: rand.Text()}
	if v := h["X-Request-Id"]; len(v) == 1 && len(v[0]) <= 128 && strings.IndexFunc(v[0], badIDRune) < 0 {
		n.client = v[0]
	}
	return n
}

func badIDRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' ||
		r == ':')
}
