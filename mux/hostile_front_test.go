package mux

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// hostileFront is what a case of the table has to work with: an open stream on the lane it may break.
type hostileFront struct {
	f     *rawFront
	lane  *rawLane
	terms wire.Terms
	out   *OutStream
}

// sent is how many bytes of the string the lane has carried: OPEN and three records of 100 bytes.
const sent = wire.HeaderSize + wire.OpenSize + 3*(wire.HeaderSize+100)

func resume(number uint64, move uint32, received, consumed uint64) wire.ResumeBody {
	return wire.ResumeBody{Number: number, Move: move, Received: received, Consumed: consumed}
}

var hostileFrontCases = []struct {
	name  string
	bytes func(h hostileFront) []byte
	drop  string // the lane goes on and this counter grows; "": the lane dies of a protocol error
	live  bool   // the lane goes on without any count
	// garbage: the frontend asked for bytes that are no records and gets them; nobody else is harmed.
	garbage bool
}{
	{name: "OPEN from a frontend", bytes: func(h hostileFront) []byte { return wire.AppendOpen(nil, h.terms.Slot, 1, 7) }},
	{name: "DATA from a frontend", bytes: func(h hostileFront) []byte { return data(wire.Data, h.terms.Slot, []byte("x")) }},
	{name: "DATA_MORE from a frontend", bytes: func(h hostileFront) []byte { return data(wire.DataMore, h.terms.Slot, []byte("x")) }},
	{name: "END from a frontend", bytes: func(h hostileFront) []byte {
		return end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: EndComplete})
	}},
	{name: "unknown kind", bytes: func(h hostileFront) []byte { return header(0x7f, 0, h.terms.Slot) }},
	{name: "kind zero", bytes: func(hostileFront) []byte { return make([]byte, 64) }},
	{name: "text", bytes: func(hostileFront) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }},
	{name: "slot beyond the maximum", bytes: func(hostileFront) []byte { return wire.AppendNumber(nil, wire.Kill, wire.MakeSlot(65537, 0), 1) }},
	{name: "slot 10 million", bytes: func(hostileFront) []byte { return wire.AppendNumber(nil, wire.Kill, wire.MakeSlot(10_000_000, 0), 1) }},
	{name: "CONSUMED of a slot beyond the maximum", bytes: func(hostileFront) []byte { return wire.AppendConsumed(nil, wire.MakeSlot(wire.MaxIndex, 255), 1) }},
	{name: "slot 0 for a stream's record", bytes: func(hostileFront) []byte { return wire.AppendNumber(nil, wire.Kill, 0, 1) }},
	{name: "index 0 with a generation", bytes: func(hostileFront) []byte { return wire.AppendNumber(nil, wire.Kill, 9, 1) }},
	{name: "PING with a slot", bytes: func(h hostileFront) []byte { return append(header(wire.Ping, 8, h.terms.Slot), make([]byte, 8)...) }},
	{name: "KILL that is too short", bytes: func(h hostileFront) []byte { return append(header(wire.Kill, 7, h.terms.Slot), make([]byte, 7)...) }},
	{name: "KILL that is too long", bytes: func(h hostileFront) []byte { return append(header(wire.Kill, 10, h.terms.Slot), make([]byte, 10)...) }},
	{name: "CONSUMED of 2 KiB and a byte, unsent", bytes: func(h hostileFront) []byte { return header(wire.Consumed, wire.MaxControl+1, h.terms.Slot) }},
	{name: "RESUME of 16 MiB, unsent", bytes: func(h hostileFront) []byte { return header(wire.Resume, wire.MaxLength, h.terms.Slot) }},
	{name: "RESUME that is too short", bytes: func(h hostileFront) []byte { return append(header(wire.Resume, 27, h.terms.Slot), make([]byte, 27)...) }},
	{name: "PING that is too short", bytes: func(hostileFront) []byte { return append(header(wire.Ping, 4, 0), make([]byte, 4)...) }},
	{name: "GOAWAY without a code", bytes: func(hostileFront) []byte { return append(header(wire.GoAway, 1, 0), 0) }},
	{name: "GOAWAY that is too long", bytes: func(hostileFront) []byte { return header(wire.GoAway, wire.MaxControl+1, 0) }},
	{name: "HELLO twice", bytes: func(h hostileFront) []byte { b := h.f.hello(); return wire.AppendHello(nil, &b) }},
	{name: "CONSUMED past what was sent", bytes: func(h hostileFront) []byte { return wire.AppendConsumed(nil, h.terms.Slot, sent+1) }},
	{name: "CONSUMED of the highest number", bytes: func(h hostileFront) []byte { return wire.AppendConsumed(nil, h.terms.Slot, math.MaxUint64) }},
	{name: "CONSUMED that goes back", bytes: func(h hostileFront) []byte {
		return append(wire.AppendConsumed(nil, h.terms.Slot, sent-108), wire.AppendConsumed(nil, h.terms.Slot, 24)...)
	}},
	{name: "RESUME past what was sent", bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, sent+1, 0))
	}},
	{name: "RESUME of the highest offset", bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, math.MaxUint64, math.MaxUint64))
	}},
	{name: "RESUME below what was consumed", bytes: func(h hostileFront) []byte {
		return append(wire.AppendConsumed(nil, h.terms.Slot, sent-108), wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, sent, 24))...)
	}},
	{name: "RESUME with more consumed than received", bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, 24, 132))
	}},
	{name: "RESUME into the middle of a record", garbage: true, bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, 24+50, 24))
	}},
	{name: "RESUME into the middle of a header", garbage: true, bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, 24+3, 24))
	}},
	{name: "RESUME to the last bytes of the ring", garbage: true, bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, sent-3, 24))
	}},
	{name: "CONSUMED and RESUME in the middle of records", garbage: true, bytes: func(h hostileFront) []byte {
		return append(wire.AppendConsumed(nil, h.terms.Slot, 24+41), wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 1, 24+43, 24+41))...)
	}},

	{name: "number 0", drop: dropStale, bytes: func(h hostileFront) []byte { return wire.AppendNumber(nil, wire.Kill, h.terms.Slot, 0) }},
	{name: "STOP of a lower number", drop: dropStale, bytes: func(h hostileFront) []byte { return wire.AppendNumber(nil, wire.Stop, h.terms.Slot, h.terms.Number-1) }},
	{name: "RESUME of a lower number", drop: dropStale, bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number-1, 9, 0, 0))
	}},
	{name: "RESUME without a move", drop: dropStale, bytes: func(h hostileFront) []byte {
		return wire.AppendResume(nil, h.terms.Slot, resume(h.terms.Number, 0, 24, 24))
	}},
	{name: "CONSUMED of a slot that nobody uses", drop: dropStale, bytes: func(hostileFront) []byte { return wire.AppendConsumed(nil, wire.MakeSlot(77, 1), 5) }},
	{name: "CONSUMED of another generation", drop: dropStale, bytes: func(h hostileFront) []byte {
		return wire.AppendConsumed(nil, wire.MakeSlot(h.terms.Slot.Index(), h.terms.Slot.Generation()+1), sent)
	}},
	{name: "a kind that is skipped, with 1 MiB", live: true, bytes: func(hostileFront) []byte {
		return append(header(0xd0, 1<<20, 5), make([]byte, 1<<20)...)
	}},
	{name: "CLAIM from a frontend", bytes: func(hostileFront) []byte { return wire.AppendClaim(nil, [16]byte{1}) }},
	{name: "GRANT that is too short", bytes: func(hostileFront) []byte { return append(header(wire.Grant, 17, 0), make([]byte, 17)...) }},
	{name: "GRANT with a slot", bytes: func(h hostileFront) []byte { return append(header(wire.Grant, 18, h.terms.Slot), make([]byte, 18)...) }},
	{name: "GRANT that nobody asked for", drop: dropStale, bytes: func(hostileFront) []byte { return wire.AppendGrant(nil, [16]byte{1}, wire.Granted, []byte("no terms")) }},
	{name: "GOAWAY draining", live: true, bytes: func(hostileFront) []byte { return wire.AppendGoAway(nil, wire.AwayDraining, "later") }},
}

// Every malformed or illegal record ends its lane, typed and counted, and that lane's streams; the neighbour on another lane
// does not notice. Stale records are dropped and counted.
func TestHostileFrontend(t *testing.T) {
	for _, c := range hostileFrontCases {
		for _, try := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				f := newRawFront(t, Config{GapMax: -1}, memory.Config{TryWrite: try})
				runHostileFront(t, f, c.bytes, c.drop, c.live, c.garbage)
			})
		}
	}
}

func TestHostileFrontendOverTCP(t *testing.T) {
	for _, c := range hostileFrontCases {
		t.Run(c.name, func(t *testing.T) {
			front, err := tcp.New(tcp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			work, err := tcp.New(tcp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			f := connectRawFront(t, Config{GapMax: -1}, nil, front, work, "127.0.0.1:0")
			runHostileFront(t, f, c.bytes, c.drop, c.live, c.garbage)
		})
	}
}

func runHostileFront(t *testing.T, f *rawFront, bytes func(hostileFront) []byte, drop string, live, garbage bool) {
	lane, quiet := f.lane(t), f.lane(t)
	f.number = 10
	h := hostileFront{f: f, lane: lane, terms: f.terms(lane, 1)}
	h.out = f.attach(t, h.terms)
	other := f.attach(t, f.terms(quiet, 2))
	for range 3 {
		if err := h.out.TrySend(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "three records", func() bool { return lane.count(wire.Data) == 3 })

	lane.send(t, bytes(h))
	switch {
	case garbage:
		waitFor(t, "the answer", func() bool { return f.send.Stats().StreamsMoved == 1 })
		for range 100 {
			if err := h.out.TrySend(make([]byte, 200)); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, "all is written", func() bool {
			h.out.mu.Lock()
			defer h.out.mu.Unlock()
			return h.out.cursor == h.out.ring.tail
		})
	case drop != "" || live:
		if !lane.alive(t) {
			t.Fatal("the lane died")
		}
		if drop != "" && f.send.Stats().RecordsDropped[drop] != 1 {
			t.Errorf("not counted as %s: %v", drop, f.send.Stats().RecordsDropped)
		}
		if h.out.Err() != nil {
			t.Errorf("the stream ended: %v", h.out.Err())
		}
	default:
		lane.dead(t)
		waitFor(t, "the death to be counted", func() bool { return f.send.Stats().LaneDeaths[deathProtocol] == 1 })
		<-h.out.Done()
		if got, err := endType(h.out.Err()); got != EndProtocol {
			t.Errorf("the lane's stream ended as %s (%v), expected protocol", got, err)
		}
	}
	if err := other.TrySend([]byte("still here")); err != nil {
		t.Errorf("the neighbour on another lane: %v", err)
	}
	quiet.await(t, "the neighbour's record", ofKind(wire.Data))
}

// A frontend that moves the streams of a lane that it broke itself finds them ended, however quick it is.
func TestBrokenLaneCannotBeLeftByResume(t *testing.T) {
	for range 50 {
		f := newRawFront(t, Config{GapMax: -1}, memory.Config{})
		lane, next := f.lane(t), f.lane(t)
		terms := f.terms(lane, 1)
		out := f.attach(t, terms)
		if err := out.TrySend([]byte("x")); err != nil {
			t.Fatal(err)
		}
		lane.await(t, "the record", ofKind(wire.Data))
		lane.send(t, header(0x7f, 0, 0))
		lane.dead(t)
		next.send(t, wire.AppendResume(nil, terms.Slot, resume(terms.Number, 1, 0, 0)))
		r, ok := next.await(t, "END", endOf(terms.Number))
		if !ok {
			t.Fatal("the other lane died")
		}
		if e, err := wire.ParseEnd(r.Slot, r.body); err != nil || e.Type != EndProtocol {
			t.Fatalf("the stream went on and ended as %s (%v)", e.Type, err)
		}
		closeInTime(t, "Sender", f.send)
	}
}

// A peer that floods PINGs and reads nothing makes nothing grow: control is state, not a queue.
func TestPingFloodThatReadsNothing(t *testing.T) {
	for _, try := range []bool{false, true} {
		f := newRawFront(t, Config{}, memory.Config{TryWrite: try, Buffer: 4 << 10})
		l := f.dial(t)
		if err := f.greet(t, l, f.hello()); err != nil {
			t.Fatal(err)
		}
		flood := slices.Repeat(wire.AppendPing(nil, wire.Ping, 1), 1000)
		for range 100 {
			l.send(t, flood)
		}
		waitFor(t, "the flood is read", func() bool { return f.send.Stats().BytesIn >= uint64(100*len(flood)) })
		k := f.send.links[linkKey{peer: frontID, id: 1}]
		k.mu.Lock()
		for _, lane := range k.lanes {
			if n := cap(lane.batch); n > 4<<10 {
				t.Errorf("PONGs that nobody reads hold %d bytes", n)
			}
		}
		k.mu.Unlock()
	}
}

// Early entries are bounded, whatever is sent; past the bound a STOP is dropped and counted, a RESUME is answered.
func TestEarlyEntriesAreBounded(t *testing.T) {
	f := newRawFront(t, Config{}, memory.Config{})
	l := f.lane(t)
	var b []byte
	for i := range uint32(65536) {
		b = wire.AppendNumber(b[:0], wire.Stop, wire.MakeSlot(i+1, 1), 1)
		if i%2 == 0 {
			b = wire.AppendResume(b[:0], wire.MakeSlot(i+1, 1), resume(1, 1, 0, 0))
		}
		l.send(t, b)
	}
	if !l.alive(t) {
		t.Fatal("the lane died")
	}
	k := f.send.links[linkKey{peer: frontID, id: 1}]
	k.mu.Lock()
	early := k.early
	k.mu.Unlock()
	if early != maxEarly {
		t.Errorf("%d early entries, the bound is %d", early, maxEarly)
	}
	if n := f.send.Stats().RecordsDropped[dropOverrun]; n != 65536/2-maxEarly/2 {
		t.Errorf("%d STOPs were dropped, expected %d", n, 65536/2-maxEarly/2)
	}
	waitFor(t, "an END for each other RESUME", func() bool { return l.count(wire.End) >= 65536/2-maxEarly/2 }) // PONG overtook some
	if n := l.count(wire.End); n != 65536/2-maxEarly/2 {
		t.Errorf("%d RESUMEs were answered by END, expected %d", n, 65536/2-maxEarly/2)
	}
}

// KILLs for requests that never came are answered and forgotten.
func TestKillOfEverySlot(t *testing.T) {
	f := newRawFront(t, Config{}, memory.Config{TryWrite: true})
	l := f.lane(t)
	for i := range uint32(65536) {
		l.send(t, wire.AppendNumber(nil, wire.Kill, wire.MakeSlot(i+1, 1), 1))
	}
	waitFor(t, "an END for each", func() bool { return l.count(wire.End) == 65536 })
	k := f.send.links[linkKey{peer: frontID, id: 1}]
	waitFor(t, "nothing is kept", func() bool {
		n := 0
		k.mu.Lock()
		k.each(func(*outSlot, *OutStream) { n++ })
		k.mu.Unlock()
		return n == 0
	})
}

// CONSUMED counts only on the lane that the stream is on; a STOP that comes before its request is remembered.
func TestRecordsOfOtherLanesAndBeforeTheRequest(t *testing.T) {
	f := newRawFront(t, Config{GapMax: -1}, memory.Config{})
	lane, other := f.lane(t), f.lane(t)
	terms := f.terms(lane, 1)
	out := f.attach(t, terms)
	if err := out.TrySend(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	lane.await(t, "the record", ofKind(wire.Data))
	other.send(t, wire.AppendConsumed(nil, terms.Slot, 132))
	if !other.alive(t) || f.send.Stats().RecordsDropped[dropStale] != 1 || f.send.Stats().ReplayBytes != 132 {
		t.Errorf("CONSUMED of another lane: %v, %d bytes are kept", f.send.Stats().RecordsDropped, f.send.Stats().ReplayBytes)
	}
	early := f.terms(lane, 2)
	other.send(t, wire.AppendNumber(nil, wire.Stop, early.Slot, early.Number))
	if !other.alive(t) {
		t.Fatal("the lane died")
	}
	if s := f.attach(t, early); !s.Stopping() {
		t.Error("a STOP before the request is forgotten")
	}
	killed := f.terms(lane, 3)
	lane.send(t, wire.AppendNumber(nil, wire.Kill, killed.Slot, killed.Number))
	lane.await(t, "END", endOf(killed.Number))
	if _, err := f.send.Attach(wire.AppendTerms(nil, &killed)); !errors.Is(err, ErrStaleTerms) {
		t.Errorf("a KILL before the request is forgotten: %v", err)
	}
}
