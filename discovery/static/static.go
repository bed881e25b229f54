// Package static is a discovery.Registry on a file: a JSON array of worker records (see discovery.Worker), read again
// when it changes. It is read-only; whoever writes the file registers the workers.
//
//	[
//	  {"schema": 1, "id": "w-0", "models": ["llama"], "node": {"id": "0f..32 hex digits..", "name": "host-1",
//	   "planes": [{"name": "tcp", "endpoints": ["10.0.0.1:7000"]}], "wire_min": 1, "wire_max": 1}}
//	]
//
// A file that cannot be read or is no array of objects is reported (event Invalid without a worker) and the workers of
// the last good one stay. A record in it that does not hold is reported and the last good one of its worker stays.
// Write the file beside and rename it over the old one, so that no half of it is ever read.
package static

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/internal/feed"
	"github.com/laneway-ai/laneway/internal/program/seldom"
)

var _ discovery.Registry = (*Registry)(nil)

// ErrReadOnly is what Register returns.
var ErrReadOnly = errors.New("static: workers of a file are registered by writing them into the file")

const (
	// DefaultInterval is how often the file is looked at.
	DefaultInterval = time.Second
	// maxSize bounds what is read into memory.
	maxSize = 64 << 20
)

// Config says which file. The zero value of a field means its default.
type Config struct {
	// Path is the file. Required. It need not be there when New is called; it is reported until it is.
	Path string
	// Interval is how often the file is looked at, 10 ms to 1 h. Default: 1 s.
	Interval time.Duration
	// Logger gets what is wrong with the file, once per change. Default: nothing is logged.
	Logger *slog.Logger
}

// Validate reports all that does not hold.
func (c Config) Validate() error {
	var errs []error
	if c.Path == "" {
		errs = append(errs, errors.New("static: no file is given"))
	}
	if c.Interval != 0 && (c.Interval < 10*time.Millisecond || c.Interval > time.Hour) {
		errs = append(errs, fmt.Errorf("static: interval %s is not 10ms to 1h", c.Interval))
	}
	return errors.Join(errs...)
}

// Registry is a discovery.Registry on a file. Make it with New. Methods may be called concurrently.
type Registry struct {
	cfg  Config
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // watches
}

// New checks the configuration. The file is read by each watch.
func New(cfg Config) (*Registry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	cfg.Logger = seldom.Logger(cfg.Logger)
	r := &Registry{cfg: cfg}
	r.life, r.end = context.WithCancel(context.Background())
	return r, nil
}

// Register implements discovery.Registry by refusing: ErrReadOnly.
func (r *Registry) Register(context.Context, []discovery.Worker) (discovery.Registration, error) {
	return nil, fmt.Errorf("%w: %s", ErrReadOnly, r.cfg.Path)
}

// Watch implements discovery.Registry. The first look at the file counts as the state that is there, also when it
// fails.
func (r *Registry) Watch(ctx context.Context) (<-chan discovery.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, discovery.ErrClosed
	}
	w := &watch{cfg: r.cfg, feed: feed.New()}
	r.wg.Go(func() {
		tick := time.NewTicker(r.cfg.Interval)
		defer tick.Stop()
		w.look()
		w.feed.Synced()
		for {
			select {
			case <-tick.C:
				w.look()
			case <-ctx.Done():
				w.feed.Close(context.Cause(ctx))
				return
			case <-r.life.Done():
				w.feed.Close(discovery.ErrClosed)
				return
			}
		}
	})
	return w.feed.Events(), nil
}

// Close implements discovery.Registry. It never fails.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.end()
	r.wg.Wait()
	return nil
}

// watch is one watcher's view of the file. One goroutine uses it.
type watch struct {
	cfg  Config
	feed *feed.Feed

	seen    os.FileInfo // at the last look
	content []byte      // of the last look; nil when it could not be read
	lastErr string      // what was reported last
}

// settled is how long a file must have been left alone until its time and size can be trusted to show every change:
// file systems keep times in steps.
const settled = 2 * time.Second

// look reads the file when it may have changed, and tells the differences.
func (w *watch) look() {
	st, err := os.Stat(w.cfg.Path)
	if err == nil && w.seen != nil && os.SameFile(st, w.seen) && st.Size() == w.seen.Size() &&
		st.ModTime().Equal(w.seen.ModTime()) &&
		w.content != nil && time.Since(st.ModTime()) > settled {
		return
	}
	w.seen = st
	var data []byte
	if err == nil {
		data, err = read(w.cfg.Path, st.Size())
	}
	if err != nil {
		w.content = nil
		w.complain(&discovery.RecordError{Key: w.cfg.Path, Field: "file", Err: err})
		return
	}
	if w.content != nil && bytes.Equal(data, w.content) {
		return
	}
	w.content = data
	records, err := w.parse(data)
	if err != nil {
		w.complain(err)
		return
	}
	w.lastErr = ""
	w.feed.Snapshot(records)
}

func (w *watch) complain(err error) {
	if err.Error() == w.lastErr {
		return
	}
	w.lastErr = err.Error()
	w.cfg.Logger.Warn("static: the workers of the last good file stay", "err", err)
	w.feed.Invalid(err)
}

func read(path string, size int64) ([]byte, error) {
	if size > maxSize {
		return nil, fmt.Errorf("is %d bytes, at most %d are read", size, maxSize)
	}
	data, err := os.ReadFile(path)
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// parse splits the file into raw records by worker id. Records without a usable id are a mistake of the whole file,
// because it is not known whose they are.
func (w *watch) parse(data []byte) (map[string]feed.Record, error) {
	bad := func(field string, err error) error {
		return &discovery.RecordError{Key: w.cfg.Path, Field: field, Err: err}
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return nil, bad("json", err)
	}
	out := make(map[string]feed.Record, len(raws))
	for i, raw := range raws {
		field := fmt.Sprintf("[%d].id", i)
		var head struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(raw, &head); err != nil {
			return nil, bad(field, err)
		}
		if !discovery.ValidName(head.ID) {
			return nil, bad(field, fmt.Errorf("%q is not 1 to 128 letters, digits, '-' or '_'", head.ID))
		}
		if _, twice := out[head.ID]; twice {
			return nil, bad(field, fmt.Errorf("%q stands there twice", head.ID))
		}
		out[head.ID] = feed.Record{Key: fmt.Sprintf("%s[%d]", w.cfg.Path, i), Data: raw}
	}
	return out, nil
}
