// Package memory has both contracts of discovery inside one process, for tests and for programs that are frontend and
// worker at once. A Hub is what etcd and NATS are elsewhere; each Registry and Deliverer of it stands for one process.
package memory

import (
	"errors"
	"fmt"
	"sync"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/internal/feed"
)

// Defaults of Config.
const (
	DefaultMaxPayload = 1 << 20
	DefaultQueue      = 256
)

// Config says how a hub behaves. The zero value of a field means its default.
type Config struct {
	// MaxPayload is how many bytes a request may have: payload, terms, id and header together. Default: 1 MiB.
	MaxPayload int
	// Queue is how many requests may wait for one worker's handler. Default: 256.
	Queue int
}

// Validate reports all that does not hold.
func (c Config) Validate() error {
	var errs []error
	if c.MaxPayload < 0 {
		errs = append(errs, fmt.Errorf("memory: max payload %d is negative", c.MaxPayload))
	}
	if c.Queue < 0 {
		errs = append(errs, fmt.Errorf("memory: queue %d is negative", c.Queue))
	}
	return errors.Join(errs...)
}

// Hub is where registries and deliverers meet. It has no goroutine of its own. Methods may be called concurrently.
type Hub struct {
	cfg Config

	mu       sync.Mutex
	records  map[string]map[string]entry    // by namespace and worker id
	watchers map[string]map[*watcher]bool   // by namespace
	places   map[string]map[string][]*place // by namespace and worker id; requests go to the last
}

// entry is a record and the registration that holds it (nil: put from outside).
type entry struct {
	data  []byte
	owner *registration
}

// watcher is one watch. Its feed is told things with the hub's lock held, so by one goroutine at a time.
type watcher struct{ feed *feed.Feed }

// New returns an empty hub.
func New(cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if cfg.Queue == 0 {
		cfg.Queue = DefaultQueue
	}
	return &Hub{cfg: cfg, records: make(map[string]map[string]entry), watchers: make(map[string]map[*watcher]bool),
		places: make(map[string]map[string][]*place)}, nil
}

func key(namespace, id string) string { return "memory:" + namespace + "/" + id }

// PutRaw puts a record there from outside, whatever it says.
func (h *Hub) PutRaw(namespace, workerID string, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.put(namespace, workerID, entry{data: data, owner: h.records[namespace][workerID].owner})
}

// DeleteRaw takes a record out, whoever holds it.
func (h *Hub) DeleteRaw(namespace, workerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delete(namespace, workerID)
}

// put and delete tell the watchers too: a feed takes what it is told without waiting for its consumer, so that may be
// done with h.mu held, and every watcher sees the same order. h.mu is held.
func (h *Hub) put(namespace, id string, e entry) {
	if h.records[namespace] == nil {
		h.records[namespace] = make(map[string]entry)
	}
	h.records[namespace][id] = e
	for w := range h.watchers[namespace] {
		w.feed.Put(id, feed.Record{Key: key(namespace, id), Data: e.data})
	}
}

func (h *Hub) delete(namespace, id string) {
	delete(h.records[namespace], id)
	for w := range h.watchers[namespace] {
		w.feed.Delete(id)
	}
}

func (h *Hub) watch(namespace string) *watcher {
	w := &watcher{feed: feed.New()}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := make(map[string]feed.Record)
	for id, e := range h.records[namespace] {
		now[id] = feed.Record{Key: key(namespace, id), Data: e.data}
	}
	w.feed.Snapshot(now)
	w.feed.Synced()
	if h.watchers[namespace] == nil {
		h.watchers[namespace] = make(map[*watcher]bool)
	}
	h.watchers[namespace][w] = true
	return w
}

func (h *Hub) unwatch(namespace string, w *watcher) {
	h.mu.Lock()
	delete(h.watchers[namespace], w)
	h.mu.Unlock()
}

// checkNamespace is for Registry and Deliverer.
func checkNamespace(namespace string) error {
	if !discovery.ValidName(namespace) {
		return fmt.Errorf("memory: namespace %q is not 1 to 128 letters, digits, '-' or '_'", namespace)
	}
	return nil
}
