package mux

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// hostileFront is what a case of the table has to work with: an open stream on the lane it may break.
type hostileFront struct {
	f     *rawFront
	terms wire.Terms
}

// sentInAll is the stream's bytes: three records of 100 bytes.
const sentInAll = 3 * (wire.HeaderSize + 100)

// whose says what a broken rule ends.
type whose int

const (
	endsLink whose = iota
	endsStream
	endsNothing
)

var hostileFrontCases = []struct {
	name  string
	bytes func(h hostileFront) []byte
	ends  whose
	drop  string // with endsNothing: this counter grows
}{
	{name: "OPEN from a frontend", bytes: func(h hostileFront) []byte {
		return wire.AppendOpen(nil, h.terms.Slot, 1, 7)
	}},
	{name: "DATA from a frontend", bytes: func(h hostileFront) []byte {
		return data(wire.Data, h.terms.Slot, []byte("x"))
	}},
	{name: "DATA_MORE from a frontend", bytes: func(h hostileFront) []byte {
		return data(wire.DataMore, h.terms.Slot, []byte("x"))
	}},
	{name: "END from a frontend", bytes: func(h hostileFront) []byte {
		return end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: EndComplete})
	}},
	{name: "CLAIM from a frontend", bytes: func(hostileFront) []byte { return wire.AppendClaim(nil, [16]byte{1}) }},
	{name: "unknown kind", bytes: func(h hostileFront) []byte { return header(0x7f, 0, h.terms.Slot) }},
	{name: "kind zero", bytes: func(hostileFront) []byte { return make([]byte, 64) }},
	{name: "text", bytes: func(hostileFront) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }},
	{name: "KILL of a slot beyond the maximum", bytes: func(hostileFront) []byte { return killOf(65537, 1) }},
	{name: "KILL of slot 10 million", bytes: func(hostileFront) []byte { return killOf(10_000_000, 1) }},
	{name: "STOP of a slot beyond the maximum", bytes: func(hostileFront) []byte {
		return wire.AppendStop(nil, wire.MakeSlot(65537, 0), 1)
	}},
	{name: "CONSUMED of a slot beyond the maximum", bytes: func(hostileFront) []byte {
		return wire.AppendConsumed(nil, wire.MakeSlot(wire.MaxIndex, 255), 1, 1)
	}},
	{name: "slot 0 for a stream's record", bytes: func(hostileFront) []byte {
		return wire.AppendKill(nil, 0, 1, EndKilled)
	}},
	{name: "index 0 with a generation", bytes: func(hostileFront) []byte {
		return wire.AppendKill(nil, 9, 1, EndKilled)
	}},
	{name: "PING with a slot", bytes: func(h hostileFront) []byte { return zeros(wire.Ping, 16, h.terms.Slot) }},
	{name: "PING that is too short", bytes: func(hostileFront) []byte { return zeros(wire.Ping, 8, 0) }},
	{name: "KILL that is too short", bytes: func(h hostileFront) []byte {
		return zeros(wire.Kill, 8, h.terms.Slot)
	}},
	{name: "KILL that is too long", bytes: func(h hostileFront) []byte {
		return zeros(wire.Kill, 10, h.terms.Slot)
	}},
	{name: "STOP that is too short", bytes: func(h hostileFront) []byte {
		return zeros(wire.Stop, 7, h.terms.Slot)
	}},
	{name: "CONSUMED that is too short", bytes: func(h hostileFront) []byte {
		return zeros(wire.Consumed, 8, h.terms.Slot)
	}},
	{name: "CONSUMED of 2 KiB and a byte, unsent", bytes: func(h hostileFront) []byte {
		return header(wire.Consumed, wire.MaxControl+1, h.terms.Slot)
	}},
	{name: "GRANT of 16 MiB, unsent", bytes: func(hostileFront) []byte {
		return header(wire.Grant, wire.MaxLength, 0)
	}},
	{name: "GRANT that is too short", bytes: func(hostileFront) []byte { return zeros(wire.Grant, 17, 0) }},
	{name: "GRANT with a slot", bytes: func(h hostileFront) []byte { return zeros(wire.Grant, 18, h.terms.Slot) }},
	{name: "GOAWAY without a code", bytes: func(hostileFront) []byte { return zeros(wire.GoAway, 1, 0) }},
	{name: "GOAWAY that is too long", bytes: func(hostileFront) []byte {
		return header(wire.GoAway, wire.MaxControl+1, 0)
	}},
	{name: "HELLO twice", bytes: func(h hostileFront) []byte { b := h.f.hello(); return wire.AppendHello(nil, &b) }},
	{name: "ACK that is too short", bytes: func(hostileFront) []byte { return zeros(wire.Ack, 7, 0) }},
	{name: "ACK past what was sent", bytes: func(hostileFront) []byte { return wire.AppendAck(nil, 1<<20) }},
	{name: "ACK of the highest number", bytes: func(hostileFront) []byte {
		return wire.AppendAck(nil, math.MaxUint64)
	}},
	{name: "PING past what was sent", bytes: func(hostileFront) []byte {
		return wire.AppendPing(nil, wire.Ping, 1, 1<<20)
	}},
	{name: "KILL of number 0", bytes: func(h hostileFront) []byte {
		return wire.AppendKill(nil, h.terms.Slot, 0, EndKilled)
	}},
	{name: "KILL of a number beyond the highest", bytes: func(hostileFront) []byte {
		return killOf(9, wire.MaxNumber+1)
	}},
	{name: "KILL of the highest u64", bytes: func(hostileFront) []byte { return killOf(9, math.MaxUint64) }},
	{name: "KILL of a higher number while one is open", bytes: func(h hostileFront) []byte {
		return wire.AppendKill(nil, h.terms.Slot, h.terms.Number+1, EndKilled)
	}},

	{name: "CONSUMED past what was sent", ends: endsStream, bytes: func(h hostileFront) []byte {
		return wire.AppendConsumed(nil, h.terms.Slot, h.terms.Number, sentInAll+1)
	}},
	{name: "CONSUMED of the highest count", ends: endsStream, bytes: func(h hostileFront) []byte {
		return wire.AppendConsumed(nil, h.terms.Slot, h.terms.Number, math.MaxUint64)
	}},
	{name: "CONSUMED that goes back", ends: endsStream, bytes: func(h hostileFront) []byte {
		return append(wire.AppendConsumed(nil, h.terms.Slot, h.terms.Number, sentInAll),
			wire.AppendConsumed(nil, h.terms.Slot, h.terms.Number, 108)...)
	}},

	{name: "CONSUMED of another number", ends: endsNothing, drop: dropStale, bytes: func(h hostileFront) []byte {
		return wire.AppendConsumed(nil, h.terms.Slot, h.terms.Number+1, math.MaxUint64)
	}},
	{name: "CONSUMED of a slot that nobody uses", ends: endsNothing, drop: dropStale, bytes: func(hostileFront) []byte {
		return wire.AppendConsumed(nil, wire.MakeSlot(77, 1), 1, 5)
	}},
	{name: "CONSUMED of another generation", ends: endsNothing, drop: dropStale, bytes: func(h hostileFront) []byte {
		another := wire.MakeSlot(h.terms.Slot.Index(), h.terms.Slot.Generation()+1)
		return wire.AppendConsumed(nil, another, h.terms.Number, sentInAll)
	}},
	{name: "KILL of a lower number", ends: endsNothing, drop: dropStale, bytes: func(h hostileFront) []byte {
		return wire.AppendKill(nil, h.terms.Slot, h.terms.Number-1, EndKilled)
	}},
	{name: "STOP of a lower number", ends: endsNothing, drop: dropStale, bytes: func(h hostileFront) []byte {
		return wire.AppendStop(nil, h.terms.Slot, h.terms.Number-1)
	}},
	{name: "STOP of a higher number, one is open", ends: endsNothing, drop: dropStale,
		bytes: func(h hostileFront) []byte {
			return wire.AppendStop(nil, h.terms.Slot, h.terms.Number+1)
		}},
	{name: "STOP of a number beyond the highest", ends: endsNothing, drop: dropStale, bytes: func(hostileFront) []byte {
		return wire.AppendStop(nil, wire.MakeSlot(9, 1), math.MaxUint64)
	}},
	{name: "GRANT that nobody asked for", ends: endsNothing, drop: dropStale, bytes: func(hostileFront) []byte {
		return wire.AppendGrant(nil, [16]byte{1}, wire.Granted, []byte("no terms"))
	}},
	{name: "ACK that goes back", ends: endsNothing, bytes: func(hostileFront) []byte {
		return append(wire.AppendAck(nil, 100), wire.AppendAck(nil, 0)...)
	}},
	{name: "ACK in the middle of a record", ends: endsNothing, bytes: func(hostileFront) []byte {
		return wire.AppendAck(nil, 24+50)
	}},
	{name: "a kind that is skipped, with 1 MiB", ends: endsNothing, bytes: func(hostileFront) []byte {
		return zeros(0xd0, 1<<20, 5)
	}},
	{name: "a counted kind that is skipped, with 1 MiB", ends: endsNothing, bytes: func(hostileFront) []byte {
		return zeros(0xff, 1<<20, 5)
	}},
	{name: "GOAWAY draining", ends: endsNothing, bytes: func(hostileFront) []byte {
		return wire.AppendGoAway(nil, wire.AwayDraining, "later")
	}},
}

// killOf is a KILL of an index.
func killOf(index uint32, number uint64) []byte {
	return wire.AppendKill(nil, wire.MakeSlot(index, 1), number, EndKilled)
}

// zeros is a record of zeros.
func zeros(k wire.Kind, n int, s wire.Slot) []byte {
	return append(header(k, n, s), make([]byte, n)...)
}

// Every malformed or illegal record ends what it must and no more: its link, typed, counted and said by GOAWAY, with
// that link's streams; or its stream. What is only stale is dropped and counted. Another link does not notice.
func TestHostileFrontend(t *testing.T) {
	for _, c := range hostileFrontCases {
		for _, try := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				f := newRawFront(t, Config{GapMax: -1}, memory.Config{TryWrite: try})
				runHostileFront(t, f, c.bytes, c.ends, c.drop)
			})
		}
	}
}

func TestHostileFrontendOverTCP(t *testing.T) {
	for _, c := range hostileFrontCases {
		t.Run(c.name, func(t *testing.T) {
			runHostileFront(t, newRawFrontOver(t, transport.PlaneTCP, Config{GapMax: -1}), c.bytes, c.ends, c.drop)
		})
	}
}

func runHostileFront(t *testing.T, f *rawFront, bytes func(hostileFront) []byte, ends whose, drop string) {
	f.lanes = 2
	lane, sibling := f.lane(t), f.laneOf(t, 1, 0)
	neighbour := f.another()
	quiet := neighbour.lane(t)
	f.number = 10
	h := hostileFront{f: f, terms: f.terms(lane, 1)}
	out, beside := f.attach(t, h.terms), f.attach(t, f.terms(sibling, 2))
	other := neighbour.attach(t, neighbour.terms(quiet, 2))
	for range 3 {
		if err := out.TrySend(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "three records", func() bool { return lane.count(wire.Data) == 3 })

	lane.send(t, bytes(h))
	switch ends {
	case endsLink:
		lane.dead(t)
		sibling.dead(t)
		waitFor(t, "the death to be counted", func() bool { return f.send.Stats().LaneDeaths[pipe.DownProtocol] == 1 })
		for _, s := range []*OutStream{out, beside} {
			<-s.Done()
			if got, err := endType(s.Err()); got != EndProtocol {
				t.Errorf("a stream of the link ended as %s (%v), expected protocol", got, err)
			}
		}
		if sibling.count(wire.GoAway) != 1 {
			t.Error("the link's other lane was not told why")
		}
	case endsStream:
		r, ok := lane.await(t, "END", endOf(h.terms.Number))
		if !ok {
			t.Fatal("the lane died")
		}
		if e, err := wire.ParseEnd(r.Slot, r.body); err != nil || e.Type != EndProtocol {
			t.Errorf("END says %s (%v)", e.Type, err)
		}
		<-out.Done()
		if got, err := endType(out.Err()); got != EndProtocol {
			t.Errorf("the stream ended as %s (%v), expected protocol", got, err)
		}
		if beside.Err() != nil {
			t.Errorf("the stream beside it ended: %v", beside.Err())
		}
	default:
		if !lane.alive(t) {
			t.Fatal("the lane died")
		}
		if drop != "" && f.send.Stats().RecordsDropped[drop] != 1 {
			t.Errorf("not counted as %s: %v", drop, f.send.Stats().RecordsDropped)
		}
		if out.Err() != nil {
			t.Errorf("the stream ended: %v", out.Err())
		}
	}
	if err := other.TrySend([]byte("still here")); err != nil {
		t.Errorf("the neighbour on another link: %v", err)
	}
	if _, ok := quiet.await(t, "the neighbour's record", ofKind(wire.Data)); !ok {
		t.Error("the neighbour's lane died")
	}
}

// A frontend that was told by a closed connection cannot go on with the link that it broke, however quick it is.
func TestBrokenLinkDoesNotResume(t *testing.T) {
	for range 50 {
		f := newRawFront(t, Config{GapMax: -1}, memory.Config{})
		lane := f.lane(t)
		out := f.attach(t, f.terms(lane, 1))
		lane.send(t, header(0x7f, 0, 0))
		lane.dead(t)
		next := f.dial(t)
		if err := f.greet(t, next, f.hello()); err == nil { // it came before the end: it ends with the link
			next.pump()
			next.dead(t)
			if next.count(wire.GoAway) != 1 {
				t.Fatal("the next connection was not told why")
			}
		}
		<-out.Done()
		if got, err := endType(out.Err()); got != EndProtocol {
			t.Fatalf("ended as %s (%v)", got, err)
		}
		closeInTime(t, "WorkerNode", f.send)
	}
}

// STOPs for requests that never come cost 8 bytes an index and are remembered; KILLs are answered, each once, whatever
// else was said of the index.
func TestStopAndKillOfEverySlot(t *testing.T) {
	const slots = 65536
	f := newRawFront(t, Config{}, memory.Config{TryWrite: true})
	l := f.lane(t)
	var b []byte
	for i := range uint32(slots) {
		b = wire.AppendStop(b, wire.MakeSlot(i+1, 1), 7)
	}
	l.send(t, b)
	if !l.alive(t) {
		t.Fatal("the lane died")
	}
	f.number = 6
	if s := f.attach(t, f.terms(l, slots)); !s.Stopping() {
		t.Error("a STOP before the request is forgotten")
	}
	b = b[:0]
	for i := range uint32(slots) {
		b = append(b, killOf(i+1, 7)...)
	}
	l.send(t, b, b)
	if !l.alive(t) {
		t.Fatal("the lane died")
	}
	waitFor(t, "an END for each", func() bool { return l.count(wire.End) >= slots })
	if !l.alive(t) || l.count(wire.End) != slots {
		t.Errorf("%d ENDs for %d numbers", l.count(wire.End), slots)
	}
}

// CONSUMED, STOP and KILL count only on the lane that the stream is on.
func TestRecordsOfOtherLanes(t *testing.T) {
	f := newRawFront(t, Config{GapMax: -1}, memory.Config{})
	f.lanes = 2
	lane, other := f.lane(t), f.laneOf(t, 1, 0)
	terms := f.terms(lane, 1)
	out := f.attach(t, terms)
	if err := out.TrySend(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	lane.await(t, "the record", ofKind(wire.Data))
	other.send(t, wire.AppendConsumed(nil, terms.Slot, terms.Number, 108),
		wire.AppendStop(nil, terms.Slot, terms.Number),
		wire.AppendKill(nil, terms.Slot, terms.Number, EndKilled))
	if !other.alive(t) || f.send.Stats().RecordsDropped[dropStale] != 3 {
		t.Errorf("dropped: %v", f.send.Stats().RecordsDropped)
	}
	if out.Err() != nil || out.Stopping() {
		t.Errorf("the stream has heard another lane: %v, stopping %t", out.Err(), out.Stopping())
	}
	killed := f.terms(lane, 3)
	other.send(t, wire.AppendKill(nil, killed.Slot, killed.Number, EndKilled))
	other.await(t, "END on the lane that KILL came on", endOf(killed.Number))
	if _, err := f.send.Attach(f.mint(&killed)); !errors.Is(err, ErrStaleTerms) {
		t.Errorf("a KILL before the request is forgotten: %v", err)
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
		flood := slices.Repeat(wire.AppendPing(nil, wire.Ping, 1, 0), 1000)
		before := heap()
		for range 100 {
			l.send(t, flood)
		}
		waitFor(t, "the flood is read", func() bool { return f.send.Stats().BytesIn >= uint64(100*len(flood)) })
		if grown := heap() - before; grown > 256<<10 {
			t.Errorf("%d bytes of PINGs whose PONGs nobody reads hold %d bytes", 100*len(flood), grown)
		}
	}
}
