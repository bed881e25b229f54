package main

import (
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

// certificateFresh is how old a certificate may be before a handshake has its files read again: they are replaced under
// a running process.
const certificateFresh = 30 * time.Second

// certificate is a certificate in files that may change.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	fresh             time.Duration
	current           atomic.Pointer[tls.Certificate]
	read              atomic.Int64 // when the files were read, Unix nanoseconds
}

// newCertificate fails with a *cli.FlagError when the files are no certificate and its key.
func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, fresh: certificateFresh}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, &cli.FlagError{Flag: "http-tls-cert", Where: "--http-tls-cert", Value: certFile, Err: err}
	}
	c.current.Store(&pair)
	c.read.Store(time.Now().UnixNano())
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// get is called by each handshake. One of them reads the files when they are due; the old pair stays when the new one
// does not hold.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	read, now := c.read.Load(), time.Now().UnixNano()
	if now-read < int64(c.fresh) || !c.read.CompareAndSwap(read, now) {
		return c.current.Load(), nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.log.Warn("the certificate could not be read again, the old one stays", "flag", "--http-tls-cert", "file",
			c.certFile, "error", err)
		return c.current.Load(), nil
	}
	c.current.Store(&pair)
	return &pair, nil
}
