package etcd

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

const shortTTL = time.Second

// logged collects what a registry logs.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// outage is an etcd with eight workers and a watcher that has seen them.
type outage struct {
	srv      *devserver.Server
	reg      *Registry
	held     discovery.Registration
	view     *discoverytest.View
	log      *logged
	observed *Registry
}

func newOutage(t *testing.T) *outage {
	o := &outage{srv: devtest.Etcd(t), log: &logged{}}
	cfg := Config{Endpoints: o.srv.Endpoints(), LeaseTTL: shortTTL, Logger: o.log.logger()}
	o.reg, o.observed = open(t, cfg), open(t, cfg)
	var err error
	if o.held, err = o.reg.Register(within(t), discoverytest.Workers("w", 8, 1)); err != nil {
		t.Fatal(err)
	}
	o.view = discoverytest.Watch(t, o.observed)
	o.view.ExpectSet(names("w", 8, "put")...)
	o.view.Expect("synced")
	return o
}

// whole checks that all workers are known again and that the present state says so, and returns how long that took.
func (o *outage) whole(t *testing.T) time.Duration {
	t.Helper()
	begin := time.Now()
	poll(t, "the registration to be in place", func() bool { return o.held.Err() == nil })
	// A lease that has run out is noticed at the next keep-alive, so the new watch may begin before that.
	for late := discoverytest.Watch(t, o.observed); len(late.Workers) < 8; {
		late.Next()
	}
	return time.Since(begin)
}

func TestShortPauseKeepsAllRecords(t *testing.T) {
	o := newOutage(t)
	if err := o.srv.Pause(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(shortTTL * 6 / 10) // the outage itself
	if err := o.srv.Resume(); err != nil {
		t.Fatal(err)
	}
	t.Logf("whole again after %s", o.whole(t))
	settle(t, o) // a lease may have run out meanwhile, when the machine was slow; the records are there in the end
}

func TestLongPauseGetsANewLease(t *testing.T) {
	o := newOutage(t)
	before := o.held.(*registration).leaseID()
	if err := o.srv.Pause(); err != nil {
		t.Fatal(err)
	}
	poll(t, "the registration to notice", func() bool { return o.held.Err() != nil })
	time.Sleep(3 * shortTTL) // the outage itself
	if err := o.srv.Resume(); err != nil {
		t.Fatal(err)
	}
	// etcd ends the lease, or its keep-alive comes first; both are right. The records are there in the end.
	t.Logf("whole again after %s, lease kept: %v", o.whole(t), before == o.held.(*registration).leaseID())
	settle(t, o)
}

// settle reads the watch until it has all workers, and checks that every delete was followed by a put.
func settle(t *testing.T, o *outage) {
	t.Helper()
	for {
		select {
		case ev, ok := <-o.view.Events():
			if !ok || ev.Kind == discovery.Closed {
				t.Fatalf("the watch ended: %v", ev.Err)
			}
			if ev.Kind == discovery.Synced || ev.Kind == discovery.Invalid {
				t.Fatalf("event %s %v after an outage", ev.Kind, ev.Err)
			}
			o.view.Apply(ev)
			continue
		case <-time.After(200 * time.Millisecond):
		}
		if len(o.view.Workers) == 8 {
			return
		}
	}
}

func TestLostLeaseIsGrantedAgain(t *testing.T) {
	o := newOutage(t)
	lease := o.held.(*registration).leaseID()
	if _, err := raw(t, o.srv).Revoke(within(t), lease); err != nil {
		t.Fatal(err)
	}
	o.view.ExpectSet(names("w", 8, "delete")...)
	o.view.ExpectSet(names("w", 8, "put")...)
	t.Logf("whole again after %s", o.whole(t))
	if o.held.(*registration).leaseID() == lease {
		t.Error("the lease is the old one")
	}
	if !o.log.has("the registration is in place again") {
		t.Error("the log does not say that it is mended")
	}
	if err := o.held.Withdraw(within(t)); err != nil { // of the new lease
		t.Error(err)
	}
	o.view.ExpectSet(names("w", 8, "delete")...)
}

func TestKilledEtcdComesBack(t *testing.T) {
	o := newOutage(t)
	o.srv.Kill()
	poll(t, "the registration to notice", func() bool { return o.held.Err() != nil })
	if err := o.srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("whole again after %s", o.whole(t))
	settle(t, o)
	// The watch has gone over to the new life.
	if _, err := o.reg.Register(within(t), []discovery.Worker{discoverytest.Worker("late", 1)}); err != nil {
		t.Fatal(err)
	}
	o.view.Expect("put late")
}

// TestResyncTellsOnlyDifferences makes the watch miss changes that were compacted meanwhile.
func TestResyncTellsOnlyDifferences(t *testing.T) {
	o := newOutage(t)
	cli := raw(t, o.srv)
	for i := range 3 { // workers without a lease: nothing but the watch is tested
		put(t, cli, o.reg, discoverytest.Worker(fmt.Sprint("x-", i), 9))
	}
	o.view.Expect("put x-0", "put x-1", "put x-2")

	w := &watch{r: o.observed, feed: newFeed(t)}
	ctx := within(t)
	if err := w.snapshot(ctx); err != nil {
		t.Fatal(err)
	}
	v := discoverytest.Follow(t, w.feed.Events())
	v.ExpectSet(append(names("w", 8, "put"), names("x", 3, "put")...)...)
	v.Expect("synced")

	if _, err := cli.Delete(ctx, o.reg.key("x-0")); err != nil {
		t.Fatal(err)
	}
	changed := discoverytest.Worker("x-1", 9)
	changed.MaxRunning = 5
	put(t, cli, o.reg, changed)
	resp, err := cli.Put(ctx, "/somewhere/else", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cli.Compact(ctx, resp.Header.Revision); err != nil {
		t.Fatal(err)
	}
	if err := w.follow(ctx); err == nil || !strings.Contains(err.Error(), "compacted") {
		t.Fatalf("follow = %v, want an error about the compaction", err)
	}
	if err := w.snapshot(ctx); err != nil {
		t.Fatal(err)
	}
	v.ExpectSet("put x-1", "delete x-0") // no other worker, and no second synced
	v.Quiet(100 * time.Millisecond)
}

// TestEtcdThatLostItsData: the workers put themselves back and the watch does not wait for revisions that will never
// come.
func TestEtcdThatLostItsData(t *testing.T) {
	o := newOutage(t)
	cli := raw(t, o.srv)
	put(t, cli, o.reg, discoverytest.Worker("ghost", 9))
	o.view.Expect("put ghost")
	addr := strings.TrimPrefix(o.srv.Endpoints()[0], "http://")
	if err := o.srv.Stop(within(t)); err != nil {
		t.Fatal(err)
	}
	devtest.Etcd(t, devserver.Options{Addr: addr})
	for {
		ev := o.view.Next()
		if ev.Kind == discovery.Delete && ev.Worker.ID == "ghost" {
			break
		}
	}
	t.Logf("whole again after %s", o.whole(t))
	settle(t, o)
}

func put(t *testing.T, cli *clientv3.Client, reg *Registry, w discovery.Worker) {
	t.Helper()
	data, err := w.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cli.Put(within(t), reg.key(w.ID), string(data)); err != nil {
		t.Fatal(err)
	}
}
