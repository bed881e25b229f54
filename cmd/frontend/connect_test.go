package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

// nobody is an address where no server listens: port 1 is reserved.
const nobody = "127.0.0.1:1"

func tryConnect(t *testing.T, args ...string) error {
	t.Helper()
	p, err := connect(context.Background(), slog.New(slog.DiscardHandler), parse(t, args...), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	select {
	case err := <-p.Failed():
		return err
	case <-time.After(patience):
		return nil
	}
}

func TestServersThatAreNotThere(t *testing.T) {
	err := tryConnect(t, "--etcd-endpoints="+nobody, "--response-plane=tcp")
	if err == nil || !strings.Contains(err.Error(), "--etcd-endpoints") || !strings.Contains(err.Error(), nobody) {
		t.Errorf("etcd: %v", err)
	}
	e := devtest.Etcd(t)
	err = tryConnect(t, "--etcd-endpoints="+strings.Join(e.Endpoints(), ","), "--nats-url=nats://"+nobody,
		"--response-plane=tcp")
	if err == nil || !strings.Contains(err.Error(), "--nats-url") || !strings.Contains(err.Error(), nobody) {
		t.Errorf("NATS: %v", err)
	}
}

func TestWorkersThatShareNoPlane(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t)
	reg, err := etcd.New(context.Background(), etcd.Config{Endpoints: e.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	_, err = reg.Register(context.Background(),
		[]discovery.Worker{{ID: "w-0", Models: []string{"m"}, Node: discovery.Node{
			ID: strings.Repeat("ab", 16), Planes: []discovery.Plane{{Name: "quic", Endpoints: []string{nobody}}},
			WireMin: 1, WireMax: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	err = tryConnect(t, "--etcd-endpoints="+strings.Join(e.Endpoints(), ","), "--nats-url="+n.URL(),
		"--response-plane=tcp")
	if err == nil || !strings.Contains(err.Error(), "--response-plane tcp: none of the 1 workers") {
		t.Errorf("%v", err)
	}
}
