// Package discoverytest holds every discovery.Registry and discovery.Deliverer to one behaviour. An implementation's
// test hands RunRegistry or RunDeliverer a function that makes an environment: real servers where there are any.
package discoverytest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
)

// Wait bounds every wait of the suites. It is long because machines are slow, never because a result is expected late.
const Wait = 30 * time.Second

// Node makes a node's record; nodes of different numbers are different processes.
func Node(number int) discovery.Node {
	return discovery.Node{
		ID: fmt.Sprintf("%032x", number), Name: fmt.Sprintf("process-%d", number),
		Planes:  []discovery.Plane{{Name: "tcp", Endpoints: []string{fmt.Sprintf("10.0.0.%d:7000", 1+number%250)}}},
		WireMin: 1, WireMax: 1,
	}
}

// Worker makes a worker's record on node number node.
func Worker(id string, node int) discovery.Worker {
	return discovery.Worker{Schema: discovery.Schema, ID: id, Models: []string{"mock"}, Node: Node(node)}
}

// Workers makes n workers on one node, named prefix-0 to prefix-(n-1).
func Workers(prefix string, n, node int) []discovery.Worker {
	out := make([]discovery.Worker, n)
	for i := range out {
		out[i] = Worker(fmt.Sprintf("%s-%d", prefix, i), node)
	}
	return out
}

// within is a context that bounds one step of a test.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Wait)
	t.Cleanup(cancel)
	return ctx
}

// View follows a watch in a test and asserts what it says.
type View struct {
	t      testing.TB
	events <-chan discovery.Event
	// Workers is what the events so far add up to.
	Workers map[string]discovery.Worker
}

// Watch begins a watch that ends with the test.
func Watch(t testing.TB, reg discovery.Registry) *View {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	events, err := reg.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return Follow(t, events)
}

// Follow reads the events of a watch that the test made itself.
func Follow(t testing.TB, events <-chan discovery.Event) *View {
	return &View{t: t, events: events, Workers: make(map[string]discovery.Worker)}
}

// Events is the channel, for a test that selects by itself. It then calls Apply with what it reads.
func (v *View) Events() <-chan discovery.Event { return v.events }

// Apply adds an event to the view.
func (v *View) Apply(ev discovery.Event) {
	v.t.Helper()
	switch ev.Kind {
	case discovery.Put:
		v.Workers[ev.Worker.ID] = ev.Worker
	case discovery.Delete:
		if _, ok := v.Workers[ev.Worker.ID]; !ok {
			v.t.Errorf("delete of worker %q, which was not there", ev.Worker.ID)
		}
		delete(v.Workers, ev.Worker.ID)
	}
}

// Next is the next event, which must come within Wait.
func (v *View) Next() discovery.Event {
	v.t.Helper()
	select {
	case ev, ok := <-v.events:
		if !ok {
			v.t.Fatal("the watch's channel is closed")
		}
		v.Apply(ev)
		return ev
	case <-time.After(Wait):
		v.t.Fatalf("no event within %s; the view has %d workers", Wait, len(v.Workers))
		panic("unreachable")
	}
}

// Quiet fails when an event comes within d. Only for asserting that something does not happen.
func (v *View) Quiet(d time.Duration) {
	v.t.Helper()
	select {
	case ev := <-v.events:
		v.t.Errorf("unexpected event: %s %s %v", ev.Kind, ev.Worker.ID, ev.Err)
	case <-time.After(d):
	}
}

// Expect reads one event for each text, "put a", "delete a", "invalid a" or "synced", in this order.
func (v *View) Expect(want ...string) {
	v.t.Helper()
	for _, w := range want {
		ev := v.Next()
		if got := strings.TrimSpace(ev.Kind.String() + " " + ev.Worker.ID); got != w {
			v.t.Fatalf("event %q (%v), want %q", got, ev.Err, w)
		}
	}
}

// ExpectSet reads as many events as there are texts, in any order.
func (v *View) ExpectSet(want ...string) {
	v.t.Helper()
	left := make(map[string]bool, len(want))
	for _, w := range want {
		left[w] = true
	}
	for len(left) > 0 {
		ev := v.Next()
		got := strings.TrimSpace(ev.Kind.String() + " " + ev.Worker.ID)
		if !left[got] {
			v.t.Fatalf("event %q (%v), want one of %v", got, ev.Err, left)
		}
		delete(left, got)
	}
}
