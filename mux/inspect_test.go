package mux

import (
	"io"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// inspectBytes bounds what a stream pays for being looked at: the headers, its lane, when it began and ended.
const inspectBytes = 256

func TestInspectIsSmall(t *testing.T) {
	var s InStream
	if n := unsafe.Sizeof(s.heads) + unsafe.Sizeof(s.minted) + unsafe.Sizeof(s.firstData) +
		unsafe.Sizeof(s.endedAt); n > inspectBytes {
		t.Errorf("inspection takes %d bytes of each stream, the bound is %d", n, inspectBytes)
	}
}

// send passes records with a consumer that takes each.
func sendAndTake(t *testing.T, in *InStream, out *OutStream, from, n, size int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		if err := out.Send(t.Context(), makeRecord(nil, 1, i, size-4)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInspectLife(t *testing.T) {
	p := newPair(t, pairConfig{})
	before := time.Now()
	in, out := p.open(t)
	i := in.Inspect()
	if i.State != "minted" || len(i.Heads()) != 0 || i.Received != 0 || i.End != nil || !i.First.IsZero() ||
		i.Minted.Before(before) || len(i.Lanes) != 1 || i.Window != DefaultWindow {
		t.Fatalf("before OPEN: %+v", i)
	}
	sendAndTake(t, in, out, 0, 3, 100)
	i = in.Inspect()
	want := []RecordHead{
		{Kind: "OPEN", Length: wire.OpenSize},
		{Kind: "DATA", Length: 100, Offset: 0},
		{Kind: "DATA", Length: 100, Offset: wire.HeaderSize + 100},
		{Kind: "DATA", Length: 100, Offset: 2*wire.HeaderSize + 200},
	}
	if got := ageless(t, i); !reflect.DeepEqual(got, want) {
		t.Fatalf("after 3 records: %+v", got)
	}
	if i.State != "live" || i.Records != 3 || i.Consumed != i.Received || i.Buffered != 0 || i.First.After(i.Last) ||
		i.First.Before(i.Minted.Add(-time.Millisecond)) {
		t.Fatalf("after 3 records: %+v", i)
	}
	sendAndTake(t, in, out, 3, 40, 200)
	if err := out.Complete(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	i = in.Inspect()
	heads := ageless(t, i)
	if len(heads) != inspectHeads || heads[inspectHeads-1].Kind != "END" || heads[0].Kind != "DATA" ||
		heads[0].Length != 200 {
		t.Fatalf("at the end: %+v", heads)
	}
	if last := heads[inspectHeads-1]; last.Offset != i.Received {
		t.Errorf("END is at %d with %d bytes, %d were received", last.Offset, last.Length, i.Received)
	}
	if i.State != "ended" || i.End == nil || i.End.Type != EndComplete || i.End.Records != 43 ||
		i.Ended.Before(i.Last) {
		t.Errorf("at the end: %+v", i)
	}
	_ = in.Close()
	p.settled(t)
	if again := in.Inspect(); !reflect.DeepEqual(again.Heads(), i.Heads()) || again.State != "ended" {
		t.Errorf("after Close: %+v", again)
	}
}

// ageless takes the times out once it has seen that they only grow and lie within the test.
func ageless(t *testing.T, i StreamInfo) []RecordHead {
	t.Helper()
	out := make([]RecordHead, len(i.Heads()))
	var last time.Duration
	for n, h := range i.Heads() {
		if h.Age < last || h.Age > time.Since(i.Minted) {
			t.Errorf("header %d came at %v, the one before at %v", n, h.Age, last)
		}
		last = h.Age
		h.Age = 0
		out[n] = h
	}
	return out
}

func TestInspectMoves(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	const cuts = 5
	for n := range cuts {
		sendAndTake(t, in, out, n, 1, 100)
		p.net.Cut(nil)
		waitFor(t, "the stream on another lane", func() bool { return in.Inspect().Moves == uint32(n+1) })
	}
	sendAndTake(t, in, out, cuts, 1, 100)
	i := in.Inspect()
	if len(i.Lanes) != cuts+1 {
		t.Fatalf("%d lanes: %+v", len(i.Lanes), i.Lanes)
	}
	for n, l := range i.Lanes {
		last := n == len(i.Lanes)-1
		if l.Plane != "memory" || l.From.IsZero() || l.To.IsZero() != last {
			t.Errorf("lane %d: %+v", n, l)
		}
		if n > 0 && (l.Serial <= i.Lanes[n-1].Serial || l.From.Before(i.Lanes[n-1].To)) {
			t.Errorf("lane %d: %+v after %+v", n, l, i.Lanes[n-1])
		}
	}
	// A replay brings what was not received, so the offsets have no gap and no overlap.
	for n, h := range i.Heads() {
		if n > 0 && i.Heads()[n-1].Kind == "DATA" && h.Offset != i.Heads()[n-1].Offset+
			uint64(wire.HeaderSize+i.Heads()[n-1].Length) {
			t.Errorf("header %d: %+v after %+v", n, h, i.Heads()[n-1])
		}
	}
	in.Kill(End{Type: EndKilled, Text: "by the test"})
	if i = in.Inspect(); i.State != "closing" && i.State != "ended" || i.End == nil || i.End.Text != "by the test" ||
		i.Ended.IsZero() {
		t.Errorf("killed: %+v", i)
	}
	_ = in.Close()
	p.settled(t)
}

func TestInspectWithoutALane(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	sendAndTake(t, in, out, 0, 2, 100)
	p.recv.RemovePeer(p.id)
	waitFor(t, "the stream's end", func() bool { return in.End() != nil })
	i := in.Inspect()
	if i.State != "ended" || i.End == nil || i.End.Type != EndLost || len(i.Lanes) != 1 || i.Lanes[0].To.IsZero() ||
		i.Lanes[0].To.Before(i.Lanes[0].From) {
		t.Errorf("%+v", i)
	}
	_ = in.Close()
}

func TestHeadsSaturate(t *testing.T) {
	var r heads
	r.note(wire.Header{Kind: wire.Data, Length: wire.MaxData - wire.HeaderSize}, -5)
	r.note(wire.Header{Kind: wire.DataMore, Length: wire.MaxEnd}, int64(100*time.Hour))
	got := r.list(1 << 40)
	if len(got) != 2 || got[0].Age != 0 || got[0].Length != wire.MaxData-wire.HeaderSize ||
		got[1].Kind != "DATA_MORE" || got[1].Length != wire.MaxEnd {
		t.Errorf("%+v", got)
	}
	if got[1].Age < 9*time.Hour || got[1].Age > 10*time.Hour {
		t.Errorf("100 hours are shown as %v", got[1].Age)
	}
	r.n = 1<<32 - 1
	r.note(wire.Header{Kind: wire.End}, 0)
	if got = r.list(0); len(got) != inspectHeads || got[inspectHeads-1].Kind != "END" {
		t.Errorf("after the counter's turn: %+v", got)
	}
	if n := testing.AllocsPerRun(100, func() { r.note(wire.Header{Kind: wire.Data, Length: 64}, 12345) }); n != 0 {
		t.Errorf("a header costs %v allocations", n)
	}
}

// BenchmarkHead is what a record pays to be seen.
func BenchmarkHead(b *testing.B) {
	var r heads
	h := wire.Header{Kind: wire.Data, Length: 64}
	age := int64(0)
	for b.Loop() {
		age += 1000
		r.note(h, age)
	}
}
