package discoverytest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
)

// DelivererEnv is a place where deliverers of several processes meet.
type DelivererEnv struct {
	// Open is the deliverer of one more process. The suite closes it.
	Open func(t *testing.T, namespace string) discovery.Deliverer
	// MaxPayload is what the path takes at most, in bytes.
	MaxPayload int
	// Queue is how many requests may wait for a handler before the next one is refused as busy.
	Queue int
}

// RunDeliverer runs the suite. env is called once for each test.
func RunDeliverer(t *testing.T, env func(t *testing.T) DelivererEnv) {
	tests := []struct {
		name string
		run  func(*testing.T, DelivererEnv)
	}{
		{"EveryAnswer", testAnswers},
		{"RequestArrivesWhole", testWhole},
		{"NoResponders", testNoResponders},
		{"TooLarge", testTooLarge},
		{"ContextEnds", testDeliverContext},
		{"Drain", testDrain},
		{"FullQueueIsBusy", testFullQueue},
		{"SlowHandlerHoldsUpOnlyItself", testSlowHandler},
		{"ServeRefusesBadInput", testServeBadInput},
		{"DelivererNamespaces", testDelivererNamespaces},
		{"ConcurrentRequests", testConcurrentRequests},
		{"ManyServed", testManyServed},
		{"CloseUnblocks", testDelivererClose},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, env(t)) })
	}
}

func (e DelivererEnv) open(t *testing.T, namespace string) discovery.Deliverer {
	t.Helper()
	d := e.Open(t, namespace)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func serve(t *testing.T, d discovery.Deliverer, id string, h discovery.Handler) discovery.Service {
	t.Helper()
	s, err := d.Serve(within(t), Worker(id, 1), h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func accept(context.Context, discovery.Request) discovery.Reply {
	return discovery.Reply{Answer: discovery.Accepted}
}

func testAnswers(t *testing.T, e DelivererEnv) {
	back := map[string]discovery.Reply{
		"1": {Answer: discovery.Accepted}, "2": {Answer: discovery.Busy, Reason: "8 running, 4 waiting"},
		"3": {Answer: discovery.Draining, Reason: "on its way out"}, "4": {Answer: discovery.Unsupported,
			Reason: "terms version 9"},
		"5": {Answer: discovery.BadRequest, Reason: "no JSON:\n\"ü\" & 100%"},
		"6": {Answer: discovery.Stale, Reason: "another life"},
	}
	serve(t, e.open(t, "ns"), "w", func(_ context.Context, r discovery.Request) discovery.Reply { return back[r.ID] })
	client := e.open(t, "ns")
	for id, want := range back {
		got, err := client.Deliver(within(t), "w", discovery.Request{ID: id})
		if err != nil || got != want {
			t.Errorf("request %s: %+v, %v; want %+v", id, got, err, want)
		}
	}
	// A handler that forgets to answer must not look as if it had accepted.
	if got, err := client.Deliver(within(t), "w", discovery.Request{ID: "none"}); err != nil ||
		got.Answer != discovery.BadRequest {
		t.Errorf("zero Reply arrives as %+v, %v", got, err)
	}
}

func testWhole(t *testing.T, e DelivererEnv) {
	var every [256]byte
	for i := range every {
		every[i] = byte(i)
	}
	requests := []discovery.Request{
		{},
		{ID: "plain-1", Terms: every[:], Payload: []byte(`{"model":"m"}`)},
		{ID: "any text: \r\n é 100% +&=", Terms: []byte{0}, Payload: every[:], Header: map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Odd Key:\n": " spaces around ",
			"empty": ""}},
	}
	got := make(chan discovery.Request, 1)
	serve(t, e.open(t, "ns"), "w", func(_ context.Context, r discovery.Request) discovery.Reply {
		got <- r
		return discovery.Reply{Answer: discovery.Accepted}
	})
	client := e.open(t, "ns")
	for i, want := range requests {
		if _, err := client.Deliver(within(t), "w", want); err != nil {
			t.Fatal(err)
		}
		r := <-got
		if r.ID != want.ID || !bytes.Equal(r.Terms, want.Terms) || !bytes.Equal(r.Payload, want.Payload) ||
			len(r.Header) != len(want.Header) {
			t.Errorf("request %d arrived as %+v, want %+v", i, r, want)
		}
		for k, v := range want.Header {
			if r.Header[k] != v {
				t.Errorf("request %d: header %q is %q, want %q", i, k, r.Header[k], v)
			}
		}
	}
}

func testNoResponders(t *testing.T, e DelivererEnv) {
	d := e.open(t, "ns")
	begin := time.Now()
	if _, err := d.Deliver(within(t), "nobody", discovery.Request{ID: "1"}); !errors.Is(err,
		discovery.ErrNoResponders) {
		t.Errorf("err = %v, want ErrNoResponders", err)
	}
	if took := time.Since(begin); took > Wait/2 {
		t.Errorf("said after %s: it waited", took)
	}
	if _, err := d.Deliver(within(t), "a.b", discovery.Request{}); err == nil ||
		errors.Is(err, discovery.ErrNoResponders) {
		t.Errorf("an impossible worker id: %v", err)
	}
}

func testTooLarge(t *testing.T, e DelivererEnv) {
	serve(t, e.open(t, "ns"), "w", accept)
	d := e.open(t, "ns")
	var se *discovery.SizeError
	_, err := d.Deliver(within(t), "w", discovery.Request{ID: "1", Payload: make([]byte, e.MaxPayload+1)})
	if !errors.As(err, &se) || se.Max != e.MaxPayload || se.Size <= e.MaxPayload {
		t.Errorf("err = %v, want a *SizeError with the limit %d", err, e.MaxPayload)
	}
	// The rest of the request counts as well.
	_, err = d.Deliver(within(t), "w", discovery.Request{ID: "1", Terms: make([]byte, 200),
		Payload: make([]byte, e.MaxPayload-100)})
	if !errors.As(err, &se) {
		t.Errorf("err = %v, want a *SizeError", err)
	}
	if r, err := d.Deliver(within(t), "w", discovery.Request{ID: "1", Terms: make([]byte, 100),
		Payload: make([]byte, e.MaxPayload-1024)}); err != nil || r.Answer != discovery.Accepted {
		t.Errorf("one that fits: %+v, %v", r, err)
	}
}

func testDeliverContext(t *testing.T, e DelivererEnv) {
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	serve(t, e.open(t, "ns"), "w", func(ctx context.Context, _ discovery.Request) discovery.Reply {
		entered <- struct{}{}
		<-release
		return discovery.Reply{Answer: discovery.Accepted}
	})
	defer close(release)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the client went away")
	go func() {
		<-entered
		cancel(reason)
	}()
	if _, err := e.open(t, "ns").Deliver(ctx, "w", discovery.Request{ID: "1"}); !errors.Is(err, reason) {
		t.Errorf("err = %v, want %v", err, reason)
	}
}

func testDrain(t *testing.T, e DelivererEnv) {
	const n = 10
	server, client := e.open(t, "ns"), e.open(t, "ns")
	release, entered := make(chan struct{}), make(chan struct{}, n)
	var handled atomic.Int32
	s := serve(t, server, "w", func(context.Context, discovery.Request) discovery.Reply {
		entered <- struct{}{}
		<-release
		handled.Add(1)
		return discovery.Reply{Answer: discovery.Accepted}
	})
	other := serve(t, server, "other", accept)

	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			r, err := client.Deliver(within(t), "w", discovery.Request{ID: fmt.Sprint(i)})
			// One that had not got into the queue when the draining began finds nobody; none may hang.
			if !errors.Is(err, discovery.ErrNoResponders) && (err != nil || r.Answer != discovery.Accepted) {
				t.Errorf("request %d: %+v, %v", i, r, err)
			}
		})
	}
	<-entered // one is in the handler, others behind it

	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(short); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain with an ended context while a handler runs: %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(within(t)) }()
	waitFor(t, "new requests to find nobody", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := client.Deliver(ctx, "w", discovery.Request{ID: "late"})
		return errors.Is(err, discovery.ErrNoResponders)
	})
	select {
	case err := <-drained:
		t.Fatalf("Drain returned (%v) while a handler runs", err)
	default:
	}
	close(release)
	go func() { // the handlers of those that were queued
		for range entered {
		}
	}()
	if err := <-drained; err != nil {
		t.Error(err)
	}
	wg.Wait()
	close(entered)
	if handled.Load() == 0 {
		t.Error("no queued request reached the handler")
	}
	if err := s.Drain(within(t)); err != nil {
		t.Errorf("second Drain: %v", err)
	}
	if r, err := client.Deliver(within(t), "other", discovery.Request{}); err != nil || r.Answer != discovery.Accepted {
		t.Errorf("another worker of the process: %+v, %v", r, err)
	}
	if err := other.Drain(within(t)); err != nil {
		t.Error(err)
	}
	serve(t, server, "w", accept) // and it may come again
	if r, err := client.Deliver(within(t), "w", discovery.Request{}); err != nil || r.Answer != discovery.Accepted {
		t.Errorf("after serving again: %+v, %v", r, err)
	}
}

func testFullQueue(t *testing.T, e DelivererEnv) {
	release := make(chan struct{})
	serve(t, e.open(t, "ns"), "w", func(context.Context, discovery.Request) discovery.Reply {
		<-release
		return discovery.Reply{Answer: discovery.Accepted}
	})
	client := e.open(t, "ns")
	const more = 20
	answers := make(chan discovery.Answer, e.Queue+1+more)
	var wg sync.WaitGroup
	for i := range e.Queue + 1 + more {
		wg.Go(func() {
			r, err := client.Deliver(within(t), "w", discovery.Request{ID: fmt.Sprint(i)})
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			answers <- r.Answer
		})
	}
	busy := 0
	for busy < more { // these come while the handler is stuck
		if a := <-answers; a != discovery.Busy {
			t.Fatalf("answer %s while the handler is stuck", a)
		}
		busy++
	}
	close(release)
	wg.Wait()
	close(answers)
	for a := range answers {
		// The first one may have been taken out of the queue only after the others had filled it.
		if a == discovery.Busy {
			if busy++; busy <= more+1 {
				continue
			}
		}
		if a != discovery.Accepted {
			t.Errorf("answer %s of a queued request", a)
		}
	}
}

func testSlowHandler(t *testing.T, e DelivererEnv) {
	server, client := e.open(t, "ns"), e.open(t, "ns")
	release, entered := make(chan struct{}), make(chan struct{}, 1)
	serve(t, server, "slow", func(context.Context, discovery.Request) discovery.Reply {
		entered <- struct{}{}
		<-release
		return discovery.Reply{Answer: discovery.Accepted}
	})
	serve(t, server, "quick", accept)
	done := make(chan error, 1)
	go func() {
		_, err := client.Deliver(within(t), "slow", discovery.Request{})
		done <- err
	}()
	<-entered
	for range 20 {
		if r, err := client.Deliver(within(t), "quick", discovery.Request{}); err != nil ||
			r.Answer != discovery.Accepted {
			t.Errorf("%+v, %v", r, err)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func testServeBadInput(t *testing.T, e DelivererEnv) {
	d := e.open(t, "ns")
	serve(t, d, "w", accept)
	bad := Worker("x", 1)
	bad.ID = "a.b"
	for name, try := range map[string]func() (discovery.Service, error){
		"served twice": func() (discovery.Service, error) { return d.Serve(within(t), Worker("w", 1), accept) },
		"bad id":       func() (discovery.Service, error) { return d.Serve(within(t), bad, accept) },
		"no handler":   func() (discovery.Service, error) { return d.Serve(within(t), Worker("y", 1), nil) },
	} {
		if s, err := try(); err == nil || s != nil {
			t.Errorf("%s: %v, %v; want an error", name, s, err)
		}
	}
}

func testDelivererNamespaces(t *testing.T, e DelivererEnv) {
	serve(t, e.open(t, "one"), "w", accept)
	if _, err := e.open(t, "two").Deliver(within(t), "w", discovery.Request{}); !errors.Is(err,
		discovery.ErrNoResponders) {
		t.Errorf("err = %v, want ErrNoResponders", err)
	}
}

func testConcurrentRequests(t *testing.T, e DelivererEnv) {
	const workers, clients, each = 8, 8, 100
	server := e.open(t, "ns")
	var seen [workers]sync.Map
	var count atomic.Int32
	for i := range workers {
		serve(t, server, fmt.Sprint("w", i), func(_ context.Context, r discovery.Request) discovery.Reply {
			if _, twice := seen[i].LoadOrStore(r.ID, true); twice {
				t.Errorf("request %s came twice", r.ID)
			}
			count.Add(1)
			return discovery.Reply{Answer: discovery.Accepted, Reason: ""}
		})
	}
	client := e.open(t, "ns")
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				r, err := client.Deliver(within(t), fmt.Sprint("w", (c+i)%workers),
					discovery.Request{ID: fmt.Sprintf("%d/%d", c, i), Payload: make([]byte, 2000)})
				if err != nil || r.Answer != discovery.Accepted {
					t.Errorf("request %d/%d: %+v, %v", c, i, r, err)
				}
			}
		})
	}
	wg.Wait()
	if n := count.Load(); n != clients*each {
		t.Errorf("handlers ran %d times for %d requests", n, clients*each)
	}
}

func testManyServed(t *testing.T, e DelivererEnv) {
	const processes, each = 8, 64
	begin := time.Now()
	var wg sync.WaitGroup
	for p := range processes {
		d := e.open(t, "ns")
		wg.Go(func() {
			for _, w := range Workers(fmt.Sprintf("p%d", p), each, p) {
				if _, err := d.Serve(within(t), w, func(_ context.Context, r discovery.Request) discovery.Reply {
					if r.ID != w.ID {
						return discovery.Reply{Answer: discovery.BadRequest, Reason: "this is " + w.ID}
					}
					return discovery.Reply{Answer: discovery.Accepted}
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d workers of %d processes served after %s", processes*each, processes, time.Since(begin))
	client := e.open(t, "ns")
	for p := range processes {
		for _, w := range Workers(fmt.Sprintf("p%d", p), each, p) {
			if r, err := client.Deliver(within(t), w.ID, discovery.Request{ID: w.ID}); err != nil ||
				r.Answer != discovery.Accepted {
				t.Errorf("worker %s: %+v, %v", w.ID, r, err)
			}
		}
	}
}

func testDelivererClose(t *testing.T, e DelivererEnv) {
	server, client := e.Open(t, "ns"), e.Open(t, "ns")
	entered := make(chan struct{}, 1)
	serve(t, server, "w", func(ctx context.Context, _ discovery.Request) discovery.Reply {
		entered <- struct{}{}
		<-ctx.Done() // Close of the worker's side ends it
		return discovery.Reply{Answer: discovery.Draining}
	})
	done := make(chan error, 1)
	go func() {
		_, err := client.Deliver(within(t), "w", discovery.Request{})
		done <- err
	}()
	<-entered
	for range 2 {
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if err := <-done; !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("a Deliver under way ended with %v, want ErrClosed", err)
	}
	if _, err := client.Deliver(within(t), "w", discovery.Request{}); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("Deliver after Close: %v", err)
	}
	if _, err := client.Serve(within(t), Worker("x", 1), accept); !errors.Is(err, discovery.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
	if err := server.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	late := e.open(t, "ns")
	waitFor(t, "the closed worker to be gone", func() bool {
		_, err := late.Deliver(within(t), "w", discovery.Request{})
		return errors.Is(err, discovery.ErrNoResponders)
	})
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Wait); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
