package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// newNamespace keeps a run apart from all others that share its servers.
func newNamespace() (string, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("namespace: %w", err)
	}
	return "cluster-" + hex.EncodeToString(b[:]), nil
}

// checkServers connects to the servers that the user named, so that nothing is started when one is not there.
func (c Config) checkServers(ctx context.Context) error {
	var errs []error
	namespace, err := newNamespace()
	if err != nil {
		return err
	}
	if len(c.EtcdEndpoints) > 0 {
		r, err := etcd.New(ctx, etcd.Config{Endpoints: redact.Wholes(c.EtcdEndpoints), Namespace: namespace})
		if err == nil {
			err = r.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--etcd-endpoints: %w", err))
		}
	}
	if !c.NATSURL.Empty() {
		d, err := nats.New(ctx, nats.Config{URL: c.NATSURL.Whole(), Namespace: namespace, Name: "cluster"})
		if err == nil {
			err = d.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--nats-url: %w", err))
		}
	}
	return errors.Join(errs...)
}
