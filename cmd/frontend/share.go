package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/discovery"
)

// shareGrace is how long a frontend that has just started puts up with workers none of which it can ever reach: others
// may be about to register.
const shareGrace = 3 * time.Second

// noSharedPlaneError says that no worker offers a plane that this frontend uses.
type noSharedPlaneError struct {
	ours, theirs []string
	workers      int
	example      string // one of the workers
}

func (e *noSharedPlaneError) Error() string {
	return fmt.Sprintf("--response-plane %s: none of the %d workers offers such a plane (%s offers %s): start "+
		"frontend and workers with one in common",
		strings.Join(e.ours, ","), e.workers, e.example, strings.Join(e.theirs, ","))
}

// planeCheck is a Registry that looks on: while no worker has ever shared a plane with this frontend, and some have
// been there for shareGrace, it reports that once. Afterwards a cluster that changes planes step by step must not end
// the frontend.
type planeCheck struct {
	discovery.Registry
	planes []string
	failed func(error)
	grace  time.Duration

	watches sync.WaitGroup // join them after the watches' contexts have ended
}

// Watch passes the events on.
func (p *planeCheck) Watch(ctx context.Context) (<-chan discovery.Event, error) {
	in, err := p.Registry.Watch(ctx)
	if err != nil {
		return nil, err
	}
	out := make(chan discovery.Event)
	p.watches.Go(func() { // ends when ctx ends or the registry closes in
		defer close(out)
		p.pass(ctx, in, out)
	})
	return out, nil
}

func (p *planeCheck) pass(ctx context.Context, in <-chan discovery.Event, out chan<- discovery.Event) {
	foreign := make(map[string][]string) // workers that share no plane, and what they offer
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	synced, settled := false, false
	for {
		select {
		case e, ok := <-in:
			if !ok {
				return
			}
			if !settled {
				before := len(foreign)
				switch e.Kind {
				case discovery.Put:
					theirs := planeNames(e.Worker.Node)
					settled = slices.ContainsFunc(theirs, func(n string) bool { return slices.Contains(p.planes, n) })
					foreign[e.Worker.ID] = theirs
				case discovery.Delete:
					delete(foreign, e.Worker.ID)
				case discovery.Synced:
					synced = true
				}
				switch {
				case settled, len(foreign) == 0:
					timer.Stop()
				case synced && (before == 0 || e.Kind == discovery.Synced):
					timer.Reset(p.grace)
				}
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		case <-timer.C:
			settled = true
			err := &noSharedPlaneError{ours: p.planes, workers: len(foreign)}
			for id := range foreign { // the smallest id, so that the message is the same each time
				if err.example == "" || id < err.example {
					err.example, err.theirs = id, foreign[id]
				}
			}
			p.failed(err)
		case <-ctx.Done():
			return
		}
	}
}

func planeNames(n discovery.Node) []string {
	var names []string
	for _, p := range n.Planes {
		names = append(names, p.Name)
	}
	return names
}
