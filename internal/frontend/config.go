package frontend

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/program/seldom"
	"github.com/laneway-ai/laneway/internal/program/tracing"
)

// Config of a Server. The zero value of every field but Backend means its default.
type Config struct {
	Backend Backend // required
	Logger  *slog.Logger
	// Metrics is where the frontend's metrics are registered; nil = a registry of its own.
	Metrics prometheus.Registerer
	// Tracer makes the requests' traces; nil = none.
	Tracer *tracing.Tracer
	// MaxOpenRequests bounds the requests that are open at once; more get OverloadStatus. 0 = no bound.
	MaxOpenRequests int
	// TLS, when set, has Serve speak HTTPS: HTTP/2 and HTTP/1.1 by ALPN, unless NextProtos says otherwise. It must have
	// a certificate.
	TLS *tls.Config
	// NoHTTP2 leaves HTTP/1.1 only. Otherwise HTTP/2 is spoken too: over TLS, and without it to clients that begin with
	// its preface (h2c).
	NoHTTP2 bool
	// MaxConcurrentStreams bounds the requests that are open at once on one connection of HTTP/2, default 1000.
	MaxConcurrentStreams int
	// MaxConnections bounds the connections that clients hold open; more are told so (OverloadStatus) and closed. 0 =
	// no bound.
	MaxConnections int
	// Files is how many files the process may have open, false when that is not known. Where it is set, the last of
	// them are not for clients: a client that comes then is turned away as by MaxConnections.
	Files func() (limit uint64, ok bool)
	// MaxHeaderBytes bounds a request's header, default 64 KiB; HeaderTimeout how long it, or a handshake, may take,
	// default 10 s.
	MaxHeaderBytes int
	HeaderTimeout  time.Duration
	// IdleTimeout is how long a connection may be silent between two requests, default 2 minutes.
	IdleTimeout time.Duration
	// MaxBodyBytes bounds a request's body, default 8 MiB. MaxReplyBytes bounds a reply that is not streamed, default
	// 16 MiB.
	MaxBodyBytes, MaxReplyBytes int
	// BodyTimeout is how long a client may take to send its body, default 30 s.
	BodyTimeout time.Duration
	// WriteTimeout is how long a client may leave a write waiting before its connection is closed, default 30 s.
	WriteTimeout time.Duration
	// KeepAlive is how long a stream may be silent before a comment is sent, default 15 s; negative = never.
	KeepAlive time.Duration
	// FirstTokenTimeout and InactivityTimeout bound the wait for the first and for each further record; 0 = no bound.
	FirstTokenTimeout, InactivityTimeout time.Duration
	// StopOnDisconnect asks the worker to finish its last output when a client leaves in mid-stream, and waits for that
	// up to StopGrace (default 5 s). Otherwise, and always before the first record, the response is killed.
	StopOnDisconnect bool
	StopGrace        time.Duration
	// OutPath says who writes the events of a stream, default OutAuto.
	OutPath OutPath
	// OverloadStatus is the status of "too many requests": 429 (default), 503 or 529.
	OverloadStatus int
}

// Validate joins all complaints.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("frontend: "+format, a...)) }
	if c.Backend == nil {
		bad("Backend is nil")
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"MaxOpenRequests", c.MaxOpenRequests}, {"MaxBodyBytes", c.MaxBodyBytes}, {"MaxReplyBytes", c.MaxReplyBytes},
		{"MaxConcurrentStreams", c.MaxConcurrentStreams}, {"MaxConnections", c.MaxConnections},
		{"MaxHeaderBytes", c.MaxHeaderBytes}} {
		if n.value < 0 {
			bad("%s is %d, expected 0 (the default) or more", n.name, n.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"BodyTimeout", c.BodyTimeout}, {"WriteTimeout", c.WriteTimeout}, {"FirstTokenTimeout", c.FirstTokenTimeout},
		{"InactivityTimeout", c.InactivityTimeout}, {"StopGrace", c.StopGrace},
		{"HeaderTimeout", c.HeaderTimeout}, {"IdleTimeout", c.IdleTimeout}} {
		if d.value < 0 {
			bad("%s is %v, expected 0 (the default) or more", d.name, d.value)
		}
	}
	if c.TLS != nil && len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil && c.TLS.GetConfigForClient == nil {
		bad("TLS has no certificate")
	}
	switch c.OutPath {
	case "", OutAuto, OutRing, OutInline, OutPull:
	default:
		bad("OutPath is %q, expected %q, %q, %q or %q", c.OutPath, OutAuto, OutPull, OutInline, OutRing)
	}
	switch c.OverloadStatus {
	case 0, 429, 503, 529:
	default:
		bad("OverloadStatus is %d, expected 429, 503 or 529", c.OverloadStatus)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.BodyTimeout, 30*time.Second)
	def(&c.WriteTimeout, 30*time.Second)
	def(&c.KeepAlive, 15*time.Second)
	def(&c.StopGrace, 5*time.Second)
	def(&c.HeaderTimeout, 10*time.Second)
	def(&c.IdleTimeout, 2*time.Minute)
	if c.MaxHeaderBytes == 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	if c.MaxConcurrentStreams == 0 {
		c.MaxConcurrentStreams = 1000
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = 8 << 20
	}
	if c.MaxReplyBytes == 0 {
		c.MaxReplyBytes = 16 << 20
	}
	if c.OverloadStatus == 0 {
		c.OverloadStatus = 429
	}
	if c.OutPath == "" {
		c.OutPath = OutAuto
	}
	c.Logger = seldom.Logger(c.Logger)
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c
}
