package main

import (
	"errors"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// httpFlags are the limits of the HTTP side, and its certificate.
type httpFlags struct {
	maxConnections, maxStreams              *int
	maxHeader, maxBody, maxReply            *int64
	headerTimeout, bodyTimeout, idleTimeout *time.Duration
	writeTimeout                            *time.Duration
	http2                                   *bool
	cert, key                               *string
}

// httpSettings are their values.
type httpSettings struct {
	maxConnections, maxStreams                            int
	maxHeader, maxBody, maxReply                          int
	headerTimeout, bodyTimeout, idleTimeout, writeTimeout time.Duration
	http2                                                 bool
	cert, key                                             string
}

func declareHTTP(app *cli.App) *httpFlags {
	f := &httpFlags{}
	g := app.Group("HTTP")
	wait := cli.Range(10*time.Millisecond, time.Hour)
	f.cert = g.String("http-tls-cert", "",
		"file with the PEM certificate chain of --http-addr, which then speaks HTTPS; read again within a minute "+
			"after it changes")
	f.key = g.String("http-tls-key", "", "file with its PEM private key")
	f.http2 = g.Bool("http2", true,
		"speak HTTP/2 as well as HTTP/1.1: by ALPN over TLS, by prior knowledge (h2c) without it")
	f.maxStreams = g.Int("http2-max-streams", 1000, cli.Range(1, 1<<20).Unit("requests"),
		"requests that one HTTP/2 connection may have open at once")
	f.maxConnections = g.Int("max-connections", 0, cli.Range(1, 10_000_000).Unit("connections").OrZero("no bound"),
		"connections that clients may hold; more are told so (see --overload-status) and closed")
	f.maxHeader = g.Size("max-header-bytes", 64<<10, cli.Range(int64(4<<10), int64(cli.MiB)),
		"size of a request's header; a larger one gets 431")
	f.maxBody = g.Size("max-body-bytes", 8*cli.MiB, cli.Range(int64(cli.KiB), int64(cli.GiB)),
		"size of a request's body; a larger one gets 413")
	f.maxReply = g.Size("max-reply-bytes", 16*cli.MiB, cli.Range(int64(cli.KiB), int64(cli.GiB)),
		"size of a reply that is not streamed; a larger one is an error that says to stream")
	f.headerTimeout = g.Duration("header-timeout", 10*time.Second, wait,
		"how long a request's header, or a TLS handshake, may take; then the connection is closed")
	f.bodyTimeout = g.Duration("body-timeout", 30*time.Second, wait,
		"how long a request's body may take; then it gets 408")
	f.idleTimeout = g.Duration("http-idle-timeout", 2*time.Minute, wait,
		"how long a connection may be silent between two requests")
	f.writeTimeout = g.Duration("write-timeout", 30*time.Second, wait,
		"how long a client may leave a write waiting; then its response is cancelled. It bounds no response that is "+
			"read")
	app.Check(f.check)
	return f
}

func (f *httpFlags) check() error {
	if (*f.cert == "") != (*f.key == "") {
		return errors.New("--http-tls-cert and --http-tls-key belong together: set both, or none for HTTP without TLS")
	}
	return nil
}

func (f *httpFlags) settings() httpSettings {
	return httpSettings{
		maxConnections: *f.maxConnections, maxStreams: *f.maxStreams,
		maxHeader: int(*f.maxHeader), maxBody: int(*f.maxBody), maxReply: int(*f.maxReply),
		headerTimeout: *f.headerTimeout, bodyTimeout: *f.bodyTimeout, idleTimeout: *f.idleTimeout,
		writeTimeout: *f.writeTimeout,
		http2:        *f.http2, cert: *f.cert, key: *f.key,
	}
}

// apply puts the settings into the HTTP side's configuration. It reads the certificate.
func (s httpSettings) apply(c *frontend.Config, log *slog.Logger) error {
	c.MaxConnections, c.MaxConcurrentStreams = s.maxConnections, s.maxStreams
	c.MaxHeaderBytes, c.MaxBodyBytes, c.MaxReplyBytes = s.maxHeader, s.maxBody, s.maxReply
	c.HeaderTimeout, c.BodyTimeout, c.IdleTimeout, c.WriteTimeout = s.headerTimeout, s.bodyTimeout, s.idleTimeout,
		s.writeTimeout
	c.NoHTTP2 = !s.http2
	if s.cert == "" {
		return nil
	}
	files, err := newCertificate(s.cert, s.key, log)
	if err != nil {
		return err
	}
	c.TLS = files.config()
	return nil
}
