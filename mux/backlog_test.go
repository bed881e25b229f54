package mux

import (
	"testing"

	"github.com/laneway-ai/laneway/transport/memory"
)

// A stream that is always ahead of its lane never empties what it keeps for its turn. What has left that must not stay
// in memory all the same.
func TestBacklogThatIsNeverEmptyStaysSmall(t *testing.T) {
	const window, total = 1 << 20, 24 << 20
	p := newPair(t, pairConfig{recv: Config{Window: window, MaxBuffered: windowShare * 2 * window},
		mem: memory.Config{Buffer: 64 << 10}})
	in, out := p.open(t)
	rec := make([]byte, 8<<10)
	most := 0
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range total / len(rec) {
			if err := out.Put(t.Context(), rec); err != nil {
				t.Error(err)
				return
			}
			out.pipe.Lock()
			most = max(most, cap(out.later))
			out.pipe.Unlock()
		}
		if err := out.Complete(nil); err != nil {
			t.Error(err)
		}
	}()
	for {
		if _, err := in.Next(t.Context()); err != nil {
			break
		}
	}
	<-sent
	_ = in.Close()
	if most > 4*window {
		t.Errorf("a stream with a window of %d keeps %d bytes for its turn", window, most)
	}
}
