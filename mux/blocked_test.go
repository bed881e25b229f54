package mux

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// blockedAt is what an operation has to wait for, and the world that it waits in.
type blockedAt struct {
	p     *pair
	addrs []string
	full  *OutStream // its window is full
	read  *InStream  // the other end of full; nothing is taken from it
	bare  *InStream  // has no record
	feed  *OutStream // the other end of bare
	open  *OpenStream
}

// The operations that wait, and what they return when the event has come. An error of nil in the table means nil.
var blockedOps = []struct {
	name     string
	do       func(ctx context.Context, w *blockedAt) error
	onDemand bool                 // the link is not dialled before, and the worker does not answer
	release  func(w *blockedAt)   // ends the wait well
	want     map[string]errorKind // by event
}{
	{name: "Send", do: func(ctx context.Context, w *blockedAt) error { return w.full.Send(ctx, make([]byte, 1000)) },
		release: drainFull,
		want: map[string]errorKind{"local close": isLost, "remote close": isLost, "link death": isLost,
			"context": isCanceled, "lane death": isNil}},
	{name: "Put", do: func(ctx context.Context, w *blockedAt) error { return w.full.Put(ctx, make([]byte, 1000)) },
		release: drainFull,
		want: map[string]errorKind{"local close": isLost, "remote close": isLost, "link death": isLost,
			"context": isCanceled, "lane death": isNil}},
	{name: "Put of fragments", do: func(ctx context.Context,
		w *blockedAt) error {
		return w.full.Put(ctx, make([]byte, 10_000))
	}, release: drainFull,
		want: map[string]errorKind{"local close": isLost, "remote close": isLost, "link death": isLost,
			"context": isCanceled, "lane death": isNil}},
	{name: "Next", do: func(ctx context.Context, w *blockedAt) error { _, err := w.bare.Next(ctx); return err },
		release: feedBare,
		want: map[string]errorKind{"removed": isLost, "local close": isLost, "remote close": isLost,
			"link death": isLost, "context": isCanceled, "lane death": isNil}},
	{name: "NextBatch", do: func(ctx context.Context,
		w *blockedAt) error {
		_, err := w.bare.NextBatch(ctx)
		return err
	}, release: feedBare,
		want: map[string]errorKind{"removed": isLost, "local close": isLost, "remote close": isLost,
			"link death": isLost, "context": isCanceled, "lane death": isNil}},
	{name: "Wait", do: func(ctx context.Context, w *blockedAt) error { return w.bare.Wait(ctx) }, release: feedBare,
		want: map[string]errorKind{"local close": isNil, "remote close": isNil, "link death": isNil,
			"context": isCanceled, "lane death": isNil}},
	{name: "OpenStream.Wait", do: func(ctx context.Context,
		w *blockedAt) error {
		_, err := w.open.Wait(ctx)
		return err
	},
		release: func(w *blockedAt) { _ = w.open.Close() },
		want:    map[string]errorKind{"local close": isClosed, "context": isCanceled, "lane death": isClosed}},
	{name: "WorkerNode.Drain", do: func(ctx context.Context, w *blockedAt) error { return w.p.send.Drain(ctx) },
		release: endAll,
		want: map[string]errorKind{"local close": isClosedOrNil, "remote close": isNil, "link death": isNil,
			"context": isCanceled, "lane death": isNil}},
	{name: "FrontendNode.Drain", do: func(ctx context.Context, w *blockedAt) error { return w.p.recv.Drain(ctx) },
		release: endAll,
		want: map[string]errorKind{"local close": isClosedOrNil, "remote close": isNil, "link death": isNil,
			"context": isCanceled, "lane death": isNil}},
	{name: "Mint on demand", onDemand: true, release: allow,
		do: func(ctx context.Context, w *blockedAt) error {
			in, err := w.p.recv.Mint(ctx, w.p.id, MintOptions{})
			if err == nil {
				_ = in.Close()
			}
			return err
		},
		want: map[string]errorKind{"local close": isClosed, "removed": isClosed, "context": isNoLink,
			"lane death": isNil}},
	{name: "Await", onDemand: true, release: allow, do: func(ctx context.Context,
		w *blockedAt) error {
		return w.p.recv.Await(ctx, w.p.id)
	},
		want: map[string]errorKind{"local close": isClosed, "removed": isClosed, "context": isNoLink,
			"lane death": isNil}},
}

type errorKind func(error) bool

func isNil(err error) bool         { return err == nil }
func isLost(err error) bool        { end, _ := endType(err); return end == EndLost }
func isCanceled(err error) bool    { return errors.Is(err, context.Canceled) }
func isClosed(err error) bool      { return errors.Is(err, ErrClosed) }
func isNoLink(err error) bool      { return errors.Is(err, ErrNoLink) && errors.Is(err, context.Canceled) }
func isClosedOrNil(err error) bool { return err == nil || isClosed(err) }

func drainFull(w *blockedAt) {
	go func() {
		for {
			if _, err := w.read.NextBatch(context.Background()); err != nil {
				return
			}
		}
	}()
}

func feedBare(w *blockedAt) { _ = w.feed.TrySend([]byte("x")) }

func endAll(w *blockedAt) {
	for _, s := range []*InStream{w.read, w.bare} {
		_ = s.Close()
	}
}

func allow(w *blockedAt) { w.p.net.Allow(w.addrs[0]) }

// ofWorker says whether the operation is of the worker.
func ofWorker(name string) bool {
	return name == "Send" || name == "Put" || name == "Put of fragments" || name == "WorkerNode.Drain"
}

var blockedEvents = map[string]func(w *blockedAt, worker bool, cancel func()){
	"local close": func(w *blockedAt, worker bool, _ func()) {
		if worker {
			_ = w.p.send.Close()
		} else {
			_ = w.p.recv.Close()
		}
	},
	"remote close": func(w *blockedAt, worker bool, _ func()) {
		if worker {
			_ = w.p.recv.Close()
		} else {
			_ = w.p.send.Close()
		}
	},
	"link death": func(w *blockedAt, _ bool, _ func()) {
		for _, a := range w.addrs {
			w.p.net.Refuse(a, syscall.ECONNREFUSED)
		}
		w.p.net.Cut(nil)
	},
	"removed": func(w *blockedAt, _ bool, _ func()) { w.p.recv.RemovePeer(w.p.id) },
	"context": func(_ *blockedAt, _ bool, cancel func()) { cancel() },
}

// Every operation that waits returns promptly, with the right error, whatever ends it; the death of a lane ends
// nothing.
func TestCloseWhileBlocked(t *testing.T) {
	for _, op := range blockedOps {
		for event, want := range op.want {
			for _, try := range []bool{false, true} {
				inFakeTime(t, op.name+"/"+event, func(t *testing.T) {
					w := newBlockedAt(t, op.onDemand, try)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					result := make(chan error, 1)
					go func() { result <- op.do(ctx, w) }()
					time.Sleep(time.Second)
					synctest.Wait()
					if len(result) > 0 {
						t.Fatalf("it does not wait: %v", <-result)
					}
					if event == "lane death" {
						w.p.net.Cut(nil)
						time.Sleep(time.Second)
						synctest.Wait()
						if len(result) > 0 {
							t.Fatalf("the death of a lane ended it: %v", <-result)
						}
						op.release(w)
					} else {
						blockedEvents[event](w, ofWorker(op.name), cancel)
					}
					begun := time.Now()
					select {
					case err := <-result:
						if !want(err) {
							t.Errorf("it returned %v", err)
						}
					case <-time.After(time.Minute):
						t.Fatal("it hangs")
					}
					switch limit := 6 * time.Second; { // a dial that hangs takes 5 s
					case event == "link death" && ofWorker(op.name):
						took(t, "returned", begun, 0, 31*time.Second) // the hold time
					default:
						took(t, "returned", begun, 0, limit)
					}
					for _, s := range []*InStream{w.read, w.bare} {
						if s != nil {
							_ = s.Close()
						}
					}
					if w.open != nil {
						_ = w.open.Close()
					}
				})
			}
		}
	}
}

func newBlockedAt(t *testing.T, onDemand, try bool) *blockedAt {
	n := memory.NewNetwork(memory.Config{TryWrite: try})
	if onDemand {
		front, work := n.Transport(frontID), n.Transport(workerID)
		p := &pair{net: n, id: workerID}
		ln, err := work.Listen(t.Context(), "worker:0", 1)
		if err != nil {
			t.Fatal(err)
		}
		w := &blockedAt{p: p, addrs: []string{ln.Endpoints()[0].String()}}
		n.Silence(w.addrs[0])
		if p.send, err = NewWorkerNode(Config{ID: workerID}); err != nil {
			t.Fatal(err)
		}
		if err := p.send.Serve(ln); err != nil {
			t.Fatal(err)
		}
		if p.recv, err = NewFrontendNode(Config{ID: frontID, OnDemand: true}, front); err != nil {
			t.Fatal(err)
		}
		if err := p.recv.AddPeer(Peer{ID: workerID,
			Planes: []PeerPlane{{Plane: "memory", Endpoints: w.addrs}}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.close(t) })
		return w
	}
	cfg := pairConfig{recv: Config{Window: 4 << 10}}
	p := connectPair(t, cfg, n, n.Transport(frontID), n.Transport(workerID), "worker:0",
		[2]transport.NodeID{frontID, workerID})
	w := &blockedAt{p: p, addrs: p.endpoints}
	w.read, w.full = p.open(t)
	w.bare, w.feed = p.open(t)
	for {
		if err := w.full.TrySend(make([]byte, 500)); errors.Is(err, ErrWindowFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.open, err = p.recv.MintOpen(MintOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}
