package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/internal/feed"
)

// checkEvery is how often a watch makes sure that it still looks at the etcd that it began with.
const checkEvery = 5 * time.Second

// errRolledBack says that etcd's history is not the one that the watch has followed.
var errRolledBack = errors.New("etcd: its revision went back: its data was lost or replaced")

// Watch implements discovery.Registry. It returns at once; while etcd is away the watch waits for it. A consumer that
// is slow gets the latest record of each worker rather than every one in between.
func (r *Registry) Watch(ctx context.Context) (<-chan discovery.Event, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, discovery.ErrClosed
	}
	r.wg.Add(1)
	r.mu.Unlock()

	w := &watch{r: r, feed: feed.New()}
	go func() {
		defer r.wg.Done()
		wctx, cancel := context.WithCancel(ctx)
		defer cancel()
		release := context.AfterFunc(r.life, cancel)
		defer release()
		w.run(wctx)
		reason := context.Cause(ctx)
		if reason == nil {
			reason = discovery.ErrClosed
		}
		w.feed.Close(reason)
	}()
	return w.feed.Events(), nil
}

// watch is one watcher: snapshot, changes from its revision on, and again from a snapshot when that breaks.
type watch struct {
	r       *Registry
	feed    *feed.Feed
	synced  bool
	cluster uint64 // id of the etcd that the revision belongs to
	rev     int64  // the newest revision that was seen
}

func (w *watch) run(ctx context.Context) {
	log := w.r.cfg.Logger
	var delay backoffDelay
	for ctx.Err() == nil {
		err := w.snapshot(ctx)
		if err == nil {
			delay.reset()
			err = w.follow(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("etcd: the watch broke, it goes on from a new snapshot", "prefix", w.r.prefix, "err", err)
		delay.wait(ctx)
	}
}

// snapshot reads all records at one revision and tells the differences.
func (w *watch) snapshot(ctx context.Context) error {
	cctx, cancel := w.r.call(ctx)
	defer cancel()
	resp, err := w.r.cli.Get(cctx, w.r.prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	now := make(map[string]feed.Record, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if id, ok := w.id(kv.Key); ok {
			now[id] = feed.Record{Key: string(kv.Key), Data: kv.Value}
		}
	}
	w.cluster, w.rev = resp.Header.ClusterId, resp.Header.Revision
	w.feed.Snapshot(now)
	if !w.synced {
		w.synced = true
		w.feed.Synced()
	}
	return nil
}

// id is the worker's id in a key. Keys that cannot be a worker's record are nobody's business here.
func (w *watch) id(key []byte) (string, bool) {
	id := string(key[len(w.r.prefix):])
	return id, discovery.ValidName(id)
}

// follow tells changes until the watch breaks. The client itself resumes after a disconnect; what it cannot resume
// (compaction, a member without a leader) comes back as an error, and so does an etcd that lost its data, for which the
// client would wait forever.
func (w *watch) follow(ctx context.Context) error {
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := w.r.cli.Watch(wctx, w.r.prefix, clientv3.WithPrefix(), clientv3.WithRev(w.rev+1))
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case resp, ok := <-changes:
			if !ok {
				return errors.New("etcd: the watch was closed")
			}
			if err := resp.Err(); err != nil {
				return err
			}
			if resp.Header.ClusterId != w.cluster {
				return errRolledBack
			}
			for _, ev := range resp.Events {
				id, ok := w.id(ev.Kv.Key)
				if !ok {
					continue
				}
				if ev.Type == clientv3.EventTypeDelete {
					w.feed.Delete(id)
				} else {
					w.feed.Put(id, feed.Record{Key: string(ev.Kv.Key), Data: ev.Kv.Value})
				}
			}
			w.rev = max(w.rev, resp.Header.Revision)
		case <-check.C:
			if err := w.check(ctx); err != nil {
				return err
			}
		}
	}
}

// check compares etcd's history with the one that was followed. An etcd that is away is no reason to begin anew.
func (w *watch) check(ctx context.Context) error {
	cctx, cancel := w.r.call(ctx)
	defer cancel()
	resp, err := w.r.cli.Get(cctx, w.r.prefix, clientv3.WithCountOnly())
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if resp.Header.ClusterId != w.cluster || resp.Header.Revision < w.rev {
		return fmt.Errorf("%w (revision %d, was %d)", errRolledBack, resp.Header.Revision, w.rev)
	}
	return nil
}
