package mux

import (
	"testing"
	"unsafe"

	"github.com/laneway-ai/laneway/transport/memory"
)

// A record asks for the stream that came two records later in the last pass, and a lane remembers no stream that has left it.
func TestAheadIsTwoRecordsLater(t *testing.T) {
	p := newPair(t, pairConfig{mem: memory.Config{TryWrite: true}})
	b := newPasses(t, p, 4, 64)
	b.pass(t)
	l := (*p.send.flushable.Load())[0]
	l.mu.Lock()
	for i, s := range b.out {
		want := ahead{}
		if i+2 < len(b.out) {
			two := b.out[i+2]
			want = ahead{uintptr(unsafe.Pointer(two)), uintptr(unsafe.Pointer(&two.ring.room[two.ring.tail-two.ring.begin]))}
		}
		if s.ahead != want {
			t.Errorf("stream %d asks for %x, expected %x", i, s.ahead, want)
		}
	}
	if l.lately != (lately{b.out[2], b.out[3]}) {
		t.Errorf("the last two records are of %p, expected %p and %p", l.lately, b.out[2], b.out[3])
	}
	l.mu.Unlock()
	b.pass(t)
	l.mu.Lock()
	if got, want := b.out[3].ahead.stream, uintptr(unsafe.Pointer(b.out[1])); got != want {
		t.Errorf("the last stream of a pass asks for %x, expected the second of the next, %x", got, want)
	}
	l.mu.Unlock()
	b.finish(t)
	p.settled(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lately != (lately{}) {
		t.Errorf("the lane remembers %p, which have ended", l.lately)
	}
}
