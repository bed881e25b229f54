package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
)

// playedRegistry is a Registry whose events a test plays.
type playedRegistry struct {
	discovery.Registry
	events chan discovery.Event
}

func (r playedRegistry) Watch(context.Context) (<-chan discovery.Event, error) { return r.events, nil }

func worker(id string, planes ...string) discovery.Worker {
	w := discovery.Worker{ID: id}
	for _, p := range planes {
		w.Node.Planes = append(w.Node.Planes, discovery.Plane{Name: p})
	}
	return w
}

func put(id string, planes ...string) discovery.Event {
	return discovery.Event{Kind: discovery.Put, Worker: worker(id, planes...)}
}

func TestNoSharedPlane(t *testing.T) {
	synced := discovery.Event{Kind: discovery.Synced}
	gone := func(id string) discovery.Event { return discovery.Event{Kind: discovery.Delete, Worker: worker(id)} }
	for _, c := range []struct {
		name   string
		events []discovery.Event
		want   string // "" = no complaint
	}{
		{"none yet", []discovery.Event{synced}, ""},
		{"all foreign", []discovery.Event{put("w-1", "quic", "tls"), put("w-0", "tls"), synced},
			"--response-plane tcp: none of the 2 workers offers such a plane (w-0 offers tls)"},
		{"foreign ones come later", []discovery.Event{synced, put("w-1", "quic")}, "none of the 1 workers"},
		{"one shares", []discovery.Event{put("w-1", "quic"), synced, put("w-2", "quic", "tcp")}, ""},
		{"one shared once", []discovery.Event{put("w-1", "tcp"), synced, gone("w-1"), put("w-2", "quic")}, ""},
		{"the foreign one left", []discovery.Event{put("w-1", "quic"), synced, gone("w-1")}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			failed := make(chan error, 1)
			reg := playedRegistry{events: make(chan discovery.Event)}
			p := &planeCheck{Registry: reg, planes: []string{"tcp"}, failed: func(err error) { failed <- err },
				grace: 30 * time.Millisecond}
			out, err := p.Watch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range c.events {
				reg.events <- e
				if got := <-out; got.Kind != e.Kind || got.Worker.ID != e.Worker.ID {
					t.Errorf("%v came out as %v", e, got)
				}
			}
			wait := time.Second // the complaint comes after 30 ms
			if c.want == "" {
				wait = 100 * time.Millisecond
			}
			select {
			case err := <-failed:
				var e *noSharedPlaneError
				if c.want == "" || !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("complains: %v, want %q", err, c.want)
				}
			case <-time.After(wait):
				if c.want != "" {
					t.Errorf("no complaint, want %q", c.want)
				}
			}
			close(reg.events)
			if _, ok := <-out; ok {
				t.Error("an event out of nothing")
			}
			p.watches.Wait()
		})
	}
}
