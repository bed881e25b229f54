package mux

import (
	"reflect"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// Warm implements pipe.Warmer: it reads a word of each cache line that the records of a read will need of their
// streams, before the first of them is handled. With thousands of streams all of them come from far away in memory,
// and that is most of what a record costs: handling one takes locks, and each lock waits for what was asked for
// before it. Here nothing waits, so the processor fetches the lines of several streams at a time.
//
// What is read never changes while others see the stream, or is written by this goroutine alone, so no lock is needed.
func (n *inLane) Warm(b []byte) {
	var sum uint64
	for len(b) >= wire.HeaderSize {
		h := wire.ParseHeader(b)
		if s := n.link.at(h.Slot.Index()); s != nil && s.lane == n {
			sum += uint64(s.slot) + uint64(s.minted) + uint64(s.heads.at(s.heads.n)[6])
			if s.link == n.link {
				sum++
			}
		}
		if h.Length > len(b)-wire.HeaderSize {
			break
		}
		b = b[wire.HeaderSize+h.Length:]
	}
	n.warmed = sum
}

// warmSinks does the same for the closures that are about to be called: a function's address is read from its
// closure. The sinks are those that Record saw with the lock held; deliver calls the ones that are set then.
func (n *inLane) warmSinks() {
	var sum uintptr
	for i := range n.touched {
		if t := &n.touched[i]; t.sink != nil {
			sum += reflect.ValueOf(t.sink).Pointer()
		} else if t.passSink != nil {
			sum += reflect.ValueOf(t.passSink).Pointer()
		}
	}
	n.warmed += uint64(sum)
}
