package mux

import (
	"errors"
	"io"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// TestSlotIsFreeOnlyAfterEnd: with one slot, a stream that was killed keeps it until the worker's END is read,
// however long that takes, so what is still on its way can meet no other stream. And a request that comes late, when
// the slot's generation has wrapped, is refused: it would be another request's answer.
func TestSlotIsFreeOnlyAfterEnd(t *testing.T) {
	p := newPair(t, pairConfig{send: Config{MaxStreams: 1}})
	lanes := p.net.Conns()
	worker := lanes[0].Peer()

	in, out := p.open(t)
	first := in.slot
	late := [][]byte{in.Terms()}
	worker.Stall() // what the worker sends stays on its way
	for i := range 100 {
		if err := out.TrySend(makeRecord(nil, 1, i, 64)); err != nil {
			t.Fatal(err)
		}
	}
	_ = in.Close()
	<-out.Done()
	if _, err := p.recv.Mint(t.Context(), p.id, MintOptions{}); !errors.Is(err, ErrBusy) {
		t.Fatalf("the only slot waits for END; expected ErrBusy, got %v", err)
	}
	worker.Release()

	// 256 further uses, of which every other one never reaches the worker; the last has the first one's slot number.
	for use := 2; ; use++ {
		var in *InStream
		waitFor(t, "the slot", func() bool {
			var err error
			in, err = p.recv.Mint(t.Context(), p.id, MintOptions{})
			return err == nil
		})
		if in.slot.Index() != 1 {
			t.Fatalf("use %d has slot %d", use, in.slot.Index())
		}
		for _, old := range late {
			if _, err := p.send.Attach(old); !errors.Is(err, ErrStaleTerms) {
				t.Fatalf("use %d: late request: expected ErrStaleTerms, got %v", use, err)
			}
		}
		if use%2 == 0 {
			late = append(late[:1], in.Terms()) // the first one's, and the last that was given up
			_ = in.Close()
			continue
		}
		out, err := p.send.Attach(in.Terms())
		if err != nil {
			t.Fatal(err)
		}
		if err := out.TrySend(makeRecord(nil, uint64(use), 0, 64)); err != nil {
			t.Fatal(err)
		}
		if err := out.Complete(nil); err != nil {
			t.Fatal(err)
		}
		rec, err := in.Next(t.Context())
		if err == nil {
			err = checkRecord(rec, uint64(use), 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Next(t.Context()); err != io.EOF {
			t.Fatal(err)
		}
		_ = in.Close()
		if use == 257 {
			if in.slot != first {
				t.Fatalf("the generation has not wrapped: %v, it began with %v", in.slot, first)
			}
			break
		}
	}
	p.settled(t)
	if n := p.recv.Stats().LaneDeaths; n[pipe.DownProtocol] != 0 {
		t.Errorf("lanes died: %v", n)
	}
	if got := wire.MakeSlot(1, 1); first != got {
		t.Errorf("the first slot is %v, expected %v", first, got)
	}
}
