package discoveryflags

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Settings are the values after parsing, with what the files hold.
type Settings struct {
	Namespace string
	Etcd      etcd.Config
	NATS      nats.Config
	// Wait is how long both servers may take to answer at the start.
	Wait time.Duration
}

// Settings reads the flags and the files that they name; call it after they were parsed. An error names the flag and
// the file.
func (f *Flags) Settings() (Settings, error) {
	s := Settings{
		Namespace: *f.namespace, Wait: *f.wait,
		Etcd: etcd.Config{Endpoints: redact.Wholes(*f.etcdEndpoints), Namespace: *f.namespace, Username: *f.etcdUser},
		NATS: nats.Config{URL: f.natsURL.Whole(), Namespace: *f.namespace, User: *f.natsUser, Credentials: *f.natsCreds,
			NKeySeed: *f.natsNKey},
	}
	if f.leaseTTL != nil {
		s.Etcd.LeaseTTL = *f.leaseTTL
	}
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	s.Etcd.Password, err = secret("etcd-password-file", *f.etcdPasswordFile)
	note(err)
	s.NATS.Password, err = secret("nats-password-file", *f.natsPasswordFile)
	note(err)
	s.Etcd.TLS, err = clientTLS("etcd", *f.etcdCA, *f.etcdCert, *f.etcdKey)
	note(err)
	s.NATS.TLS, err = clientTLS("nats", *f.natsCA, *f.natsCert, *f.natsKey)
	note(err)
	for flag, path := range map[string]string{"nats-creds-file": *f.natsCreds, "nats-nkey-file": *f.natsNKey} {
		if path != "" {
			_, err := os.Stat(path)
			note(named(flag, path, err))
		}
	}
	return s, errors.Join(errs...)
}

func named(flag, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s %s: %w", flag, path, err)
}

// secret is what a file holds; empty when there is none.
func secret(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	s, err := cli.ReadSecret(path)
	return s, named(flag, path, err)
}

// clientTLS is nil when nothing is given.
func clientTLS(server, ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, named(server+"-ca-file", ca, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, named(server+"-ca-file", ca, errors.New("holds no PEM certificate"))
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("--%s-cert-file %s, --%s-key-file %s: %w", server, cert, server, key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
