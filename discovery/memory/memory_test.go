package memory

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newHub(t *testing.T, cfg Config) *Hub {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRegistry(t *testing.T) {
	discoverytest.RunRegistry(t, func(t *testing.T) discoverytest.RegistryEnv {
		h := newHub(t, Config{})
		return discoverytest.RegistryEnv{
			Open: func(t *testing.T, ns string) discovery.Registry {
				r, err := h.Registry(ns)
				if err != nil {
					t.Fatal(err)
				}
				return r
			},
			Crash:     func(_ *testing.T, r discovery.Registry) { r.(*Registry).Crash() },
			PutRaw:    func(_ *testing.T, ns, id string, data []byte) { h.PutRaw(ns, id, data) },
			DeleteRaw: func(_ *testing.T, ns, id string) { h.DeleteRaw(ns, id) },
		}
	})
}

func TestDeliverer(t *testing.T) {
	cfg := Config{MaxPayload: 64 << 10, Queue: 16}
	discoverytest.RunDeliverer(t, func(t *testing.T) discoverytest.DelivererEnv {
		h := newHub(t, cfg)
		return discoverytest.DelivererEnv{MaxPayload: cfg.MaxPayload, Queue: cfg.Queue,
			Open: func(t *testing.T, ns string) discovery.Deliverer {
				d, err := h.Deliverer(ns)
				if err != nil {
					t.Fatal(err)
				}
				return d
			}}
	})
}

func TestBadInput(t *testing.T) {
	if _, err := New(Config{MaxPayload: -1, Queue: -1}); err == nil {
		t.Error("negative sizes are taken")
	}
	h := newHub(t, Config{})
	if _, err := h.Registry("a/b"); err == nil {
		t.Error("Registry takes the namespace a/b")
	}
	if _, err := h.Deliverer(""); err == nil {
		t.Error("Deliverer takes an empty namespace")
	}
}
