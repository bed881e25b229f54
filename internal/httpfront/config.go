package httpfront

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config of a Server. The zero value of every field but Backend means its default.
type Config struct {
	Backend Backend // required
	Logger  *slog.Logger
	// Metrics is where the frontend's metrics are registered; nil = a registry of its own.
	Metrics prometheus.Registerer
	// MaxOpenRequests bounds the requests that are open at once; more get OverloadStatus. 0 = no bound.
	MaxOpenRequests int
	// MaxBodyBytes bounds a request's body, default 8 MiB. MaxReplyBytes bounds a reply that is not streamed, default 16 MiB.
	MaxBodyBytes, MaxReplyBytes int
	// BodyTimeout is how long a client may take to send its body, default 30 s.
	BodyTimeout time.Duration
	// WriteTimeout is how long a client may leave a write waiting before its connection is closed, default 30 s.
	WriteTimeout time.Duration
	// KeepAlive is how long a stream may be silent before a comment is sent, default 15 s; negative = never.
	KeepAlive time.Duration
	// FirstTokenTimeout and InactivityTimeout bound the wait for the first and for each further record; 0 = no bound.
	FirstTokenTimeout, InactivityTimeout time.Duration
	// StopOnDisconnect asks the worker to finish its last output when a client leaves in mid-stream, and waits for that up to
	// StopGrace (default 5 s). Otherwise, and always before the first record, the response is killed.
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
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("httpfront: "+format, a...)) }
	if c.Backend == nil {
		bad("Backend is nil")
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"MaxOpenRequests", c.MaxOpenRequests}, {"MaxBodyBytes", c.MaxBodyBytes}, {"MaxReplyBytes", c.MaxReplyBytes}} {
		if n.value < 0 {
			bad("%s is %d, expected 0 (the default) or more", n.name, n.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"BodyTimeout", c.BodyTimeout}, {"WriteTimeout", c.WriteTimeout}, {"FirstTokenTimeout", c.FirstTokenTimeout},
		{"InactivityTimeout", c.InactivityTimeout}, {"StopGrace", c.StopGrace}} {
		if d.value < 0 {
			bad("%s is %v, expected 0 (the default) or more", d.name, d.value)
		}
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
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c
}
