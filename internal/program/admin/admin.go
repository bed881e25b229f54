// Package admin is the HTTP listener beside a program's own work: metrics, health and profiles.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/seldom"
)

// Config says where to listen and what to tell. It is passed by value.
type Config struct {
	// Addr is the host:port to listen on.
	Addr string
	// Flag is the flag that gave Addr, without dashes, for errors; empty means admin-addr.
	Flag string
	// Metrics is what /metrics shows. Nil makes it answer 404.
	Metrics prometheus.Gatherer
	// Live says why the process should be restarted, Ready why it should get no work; nil errors, and nil functions,
	// mean that all is well. They are called by several goroutines at once and must not wait.
	Live, Ready func() error
	// ProfilesForAll serves profiles to clients on other hosts too, not only to those on the loopback interface.
	ProfilesForAll bool
	// Logger gets what goes wrong while serving; nil discards it.
	Logger *slog.Logger
}

// Validate joins everything that is wrong.
func (c Config) Validate() error {
	if c.Addr == "" {
		return errors.New("admin: Addr is empty: give a host:port, such as 127.0.0.1:9090")
	}
	return nil
}

const (
	// headerTimeout bounds how long a client may take to send a request's header, so that idle connections hold
	// nothing.
	headerTimeout = 5 * time.Second
	// idleTimeout is above the scrape interval that Prometheus has by default (60 s), so that it keeps its connection.
	idleTimeout = 90 * time.Second
	// closeGrace is how long Close lets running answers finish; then their connections are cut.
	closeGrace = 2 * time.Second
)

// Server is a running admin listener.
type Server struct {
	mux     *http.ServeMux
	http    *http.Server
	addr    net.Addr
	reserve *reserve
	cancel  context.CancelFunc // ends the requests' contexts: a 30 s profile must not hold up Close
	served  chan struct{}      // closed when the serving goroutine has ended

	closeOnce sync.Once
	closeErr  error
}

// Start listens and serves until Close. It fails with a *cli.FlagError when the address cannot be had. ctx bounds the
// set-up only.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Flag == "" {
		cfg.Flag = "admin-addr"
	}
	cfg.Logger = seldom.Logger(cfg.Logger)
	others := slog.NewLogLogger(seldom.One(cfg.Logger).Handler(), slog.LevelWarn) // what clients and scrapes can cause
	l, err := cli.Listen(ctx, cfg.Flag, cfg.Addr)
	if err != nil {
		return nil, err
	}
	base, cancel := context.WithCancel(context.Background())
	s := &Server{mux: http.NewServeMux(), addr: l.Addr(), reserve: newReserve(l), cancel: cancel,
		served: make(chan struct{})}
	s.routes(cfg, others)
	s.http = &http.Server{
		Handler:           s.mux,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		// No WriteTimeout: profiles and traces take as long as was asked for.
		MaxHeaderBytes: 64 << 10,
		BaseContext:    func(net.Listener) context.Context { return base },
		ErrorLog:       others,
	}
	go func() { // ends on Close, which joins it
		defer close(s.served)
		if err := s.http.Serve(s.reserve); !errors.Is(err, http.ErrServerClosed) {
			cfg.Logger.Error("the admin listener ended", "address", l.Addr().String(), "error", err)
		}
	}()
	return s, nil
}

func (s *Server) routes(cfg Config, others *log.Logger) {
	live, ready := health(cfg.Live), health(cfg.Ready)
	s.Handle("GET /livez", live)
	s.Handle("GET /live", live)
	s.Handle("GET /readyz", ready)
	s.Handle("GET /health", ready)
	if cfg.Metrics != nil {
		s.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{
			ErrorLog:      others,
			ErrorHandling: promhttp.HTTPErrorOnError,
		}))
	}
	s.profiles(cfg.ProfilesForAll)
}

// Handle adds a handler under a pattern of http.ServeMux: "GET /debug/plane". It may be called while serving; a pattern
// that is there already panics, as it does in http.ServeMux.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.addr }

// Close stops listening, gives running answers 2 s, cuts what is left, and joins. It is idempotent.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		err := s.http.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = s.http.Close()
		}
		if err != nil {
			s.closeErr = fmt.Errorf("admin: close %s: %w", s.addr, err)
		}
		<-s.served
	})
	return s.closeErr
}

// health answers 200 "ok", or 503 and the reason.
func health(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if check != nil {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, err)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
}
