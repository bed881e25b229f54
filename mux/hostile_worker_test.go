package mux

import (
	"bytes"
	"math"
	"testing"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// hostileWorker is what a case of the table has to work with: a live stream on the lane it may break, another that has no
// OPEN yet, and one on the quiet lane.
type hostileWorker struct {
	w      *rawWorker
	lane   *rawLane
	in     *InStream
	terms  wire.Terms
	minted wire.Terms
	other  wire.Terms // on the quiet lane
}

func free(index uint32) wire.Slot { return wire.MakeSlot(index, 1) }

func complete(number, records, bytes uint64) wire.EndBody {
	return wire.EndBody{Number: number, Type: EndComplete, Records: records, Bytes: bytes}
}

var hostileWorkerCases = []struct {
	name  string
	bytes func(h hostileWorker) []byte
	drop  string // the lane goes on and this counter grows; "": the lane dies of a protocol error
	kill  uint64 // a KILL of this number is the answer
	live  bool   // the lane goes on without any count
}{
	{name: "CONSUMED from a worker", bytes: func(h hostileWorker) []byte { return wire.AppendConsumed(nil, h.terms.Slot, 1) }},
	{name: "STOP from a worker", bytes: func(h hostileWorker) []byte { return wire.AppendNumber(nil, wire.Stop, h.terms.Slot, 1) }},
	{name: "KILL from a worker", bytes: func(h hostileWorker) []byte { return wire.AppendNumber(nil, wire.Kill, h.terms.Slot, 1) }},
	{name: "RESUME from a worker", bytes: func(h hostileWorker) []byte { return wire.AppendResume(nil, h.terms.Slot, resume(1, 1, 0, 0)) }},
	{name: "unknown kind", bytes: func(h hostileWorker) []byte { return header(0x7f, 0, h.terms.Slot) }},
	{name: "kind zero", bytes: func(hostileWorker) []byte { return make([]byte, 64) }},
	{name: "text", bytes: func(hostileWorker) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }},
	{name: "DATA of slot 0", bytes: func(hostileWorker) []byte { return data(wire.Data, 0, []byte("x")) }},
	{name: "DATA of index 0", bytes: func(hostileWorker) []byte { return data(wire.Data, 3, []byte("x")) }},
	{name: "PONG with a slot", bytes: func(h hostileWorker) []byte { return append(header(wire.Pong, 8, h.terms.Slot), make([]byte, 8)...) }},
	{name: "PONG that is too long", bytes: func(hostileWorker) []byte { return append(header(wire.Pong, 9, 0), make([]byte, 9)...) }},
	{name: "DATA over 64 KiB, unsent", bytes: func(h hostileWorker) []byte { return header(wire.Data, wire.MaxData-wire.HeaderSize+1, h.terms.Slot) }},
	{name: "DATA of 16 MiB, unsent", bytes: func(h hostileWorker) []byte { return header(wire.Data, wire.MaxLength, h.terms.Slot) }},
	{name: "DATA of a free slot over 64 KiB, unsent", bytes: func(hostileWorker) []byte { return header(wire.Data, wire.MaxLength, free(99)) }},
	{name: "END over 20 KiB, unsent", bytes: func(h hostileWorker) []byte { return header(wire.End, wire.MaxEnd+1, h.terms.Slot) }},
	{name: "DATA over half the window", bytes: func(h hostileWorker) []byte { return data(wire.Data, h.terms.Slot, make([]byte, 32<<10)) }},
	{name: "DATA over the window", bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.Data, h.terms.Slot, make([]byte, 30<<10)), 3)
	}},
	{name: "empty DATA over the window", bytes: func(h hostileWorker) []byte { return bytes.Repeat(data(wire.Data, h.terms.Slot, nil), 9000) }},
	{name: "fragments beyond the longest record", bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.DataMore, h.terms.Slot, make([]byte, 30<<10)), 4)
	}},
	{name: "a last part beyond the longest record", bytes: func(h hostileWorker) []byte {
		b := bytes.Repeat(data(wire.DataMore, h.terms.Slot, make([]byte, 25<<10)), 4)
		return append(b, data(wire.Data, h.terms.Slot, make([]byte, 1))...)
	}},
	{name: "OPEN twice", bytes: func(h hostileWorker) []byte { return wire.AppendOpen(nil, h.terms.Slot, h.terms.Number, h.terms.Key) }},
	{name: "OPEN that is too short", bytes: func(h hostileWorker) []byte { return append(header(wire.Open, 8, h.terms.Slot), make([]byte, 8)...) }},
	{name: "OPEN of a free slot that is too short", bytes: func(hostileWorker) []byte { return append(header(wire.Open, 8, free(99)), make([]byte, 8)...) }},
	{name: "END that counts too many records", bytes: func(h hostileWorker) []byte { return end(h.terms.Slot, complete(h.terms.Number, 2, 5)) }},
	{name: "END that counts too few bytes", bytes: func(h hostileWorker) []byte { return end(h.terms.Slot, complete(h.terms.Number, 1, 4)) }},
	{name: "END complete in the middle of a record", bytes: func(h hostileWorker) []byte {
		return append(data(wire.DataMore, h.terms.Slot, []byte("x")), end(h.terms.Slot, complete(h.terms.Number, 1, 5))...)
	}},
	{name: "END complete without OPEN", bytes: func(h hostileWorker) []byte { return end(h.minted.Slot, complete(h.minted.Number, 0, 0)) }},
	{name: "END of type 0", bytes: func(h hostileWorker) []byte { return end(h.terms.Slot, wire.EndBody{Number: h.terms.Number}) }},
	{name: "END of type 200", bytes: func(h hostileWorker) []byte {
		return end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: 200})
	}},
	{name: "END that is too short", bytes: func(h hostileWorker) []byte { return append(header(wire.End, 29, h.terms.Slot), make([]byte, 29)...) }},
	{name: "END whose text is longer than its body", bytes: func(h hostileWorker) []byte {
		b := end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: EndFailed})
		b[len(b)-1] = 1
		return b
	}},
	{name: "END with too long a trailer", bytes: func(h hostileWorker) []byte {
		b := end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: EndFailed})
		b = append(b, make([]byte, wire.MaxEndTrailer+1)...)
		wire.PutHeader(b, wire.End, len(b)-wire.HeaderSize, h.terms.Slot)
		return b
	}},
	{name: "HELLO twice", bytes: func(hostileWorker) []byte { return wire.AppendHello(nil, &wire.HelloBody{Lowest: 1, Highest: 1}) }},
	{name: "GOAWAY without a code", bytes: func(hostileWorker) []byte { return header(wire.GoAway, 0, 0) }},

	{name: "DATA of a free slot", drop: dropFree, bytes: func(hostileWorker) []byte { return data(wire.Data, free(99), []byte("x")) }},
	{name: "DATA of slot 10 million", drop: dropFree, bytes: func(hostileWorker) []byte { return data(wire.Data, free(10_000_000), []byte("x")) }},
	{name: "DATA of another generation", drop: dropFree, bytes: func(h hostileWorker) []byte {
		return data(wire.Data, wire.MakeSlot(h.terms.Slot.Index(), h.terms.Slot.Generation()+1), []byte("x"))
	}},
	{name: "END of a free slot", drop: dropFree, bytes: func(hostileWorker) []byte { return end(free(99), complete(99, 0, 0)) }},
	{name: "OPEN of a free slot", drop: dropFree, kill: 99, bytes: func(hostileWorker) []byte { return wire.AppendOpen(nil, free(99), 99, 1) }},
	{name: "OPEN of slot 10 million", drop: dropFree, kill: 99, bytes: func(hostileWorker) []byte { return wire.AppendOpen(nil, free(10_000_000), 99, 1) }},
	{name: "OPEN with a wrong key", drop: dropKey, kill: 99, bytes: func(h hostileWorker) []byte { return wire.AppendOpen(nil, h.minted.Slot, 99, h.minted.Key) }},
	{name: "OPEN with a wrong number", drop: dropKey, kill: math.MaxUint64, bytes: func(h hostileWorker) []byte {
		return wire.AppendOpen(nil, h.minted.Slot, math.MaxUint64, h.minted.Key)
	}},
	{name: "DATA before OPEN", drop: dropEarly, bytes: func(h hostileWorker) []byte { return data(wire.Data, h.minted.Slot, []byte("x")) }},
	{name: "END of another number", drop: dropStale, bytes: func(h hostileWorker) []byte { return end(h.terms.Slot, complete(h.terms.Number+9, 1, 5)) }},
	{name: "DATA of a stream on another lane", drop: dropStale, bytes: func(h hostileWorker) []byte { return data(wire.Data, h.other.Slot, []byte("x")) }},
	{name: "END of a stream on another lane", drop: dropStale, bytes: func(h hostileWorker) []byte { return end(h.other.Slot, complete(h.other.Number, 1, 5)) }},
	{name: "END twice", drop: dropFree, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(end(h.minted.Slot, wire.EndBody{Number: h.minted.Number, Type: EndRefused}), 2)
	}},
	{name: "a kind that is skipped, with 1 MiB", live: true, bytes: func(hostileWorker) []byte {
		return append(header(0xff, 1<<20, 5), make([]byte, 1<<20)...)
	}},
	{name: "empty fragments without end", live: true, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.DataMore, h.terms.Slot, nil), 20_000)
	}},
	{name: "GRANT from a worker", bytes: func(hostileWorker) []byte { return wire.AppendGrant(nil, [16]byte{1}, wire.GrantBusy, nil) }},
	{name: "CLAIM that is too short", bytes: func(hostileWorker) []byte { return append(header(wire.Claim, 15, 0), make([]byte, 15)...) }},
	{name: "CLAIMs of ids that nobody waits for", live: true, bytes: func(hostileWorker) []byte {
		return bytes.Repeat(wire.AppendClaim(nil, [16]byte{1}), 10_000)
	}},
	{name: "PONGs that nobody asked for", live: true, bytes: func(hostileWorker) []byte {
		return append(wire.AppendPing(nil, wire.Pong, 0), wire.AppendPing(nil, wire.Pong, math.MaxUint64)...)
	}},
}

// Every malformed or illegal record of a worker ends its lane, typed and counted, and that lane's streams, for which the worker
// gets KILL on another lane; the neighbour does not notice.
func TestHostileWorker(t *testing.T) {
	for _, c := range hostileWorkerCases {
		for _, try := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				w := newRawWorker(t, Config{Lanes: 2, GapMax: -1, MaxRecord: 100 << 10}, memory.Config{TryWrite: try}, nil)
				runHostileWorker(t, w, c.bytes, c.drop, c.kill, c.live)
			})
		}
	}
}

func TestHostileWorkerOverTCP(t *testing.T) {
	for _, c := range hostileWorkerCases {
		t.Run(c.name, func(t *testing.T) {
			front, err := tcp.New(tcp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			work, err := tcp.New(tcp.Config{})
			if err != nil {
				t.Fatal(err)
			}
			w := connectRawWorker(t, Config{Lanes: 2, GapMax: -1, MaxRecord: 100 << 10}, nil, front, work, "127.0.0.1:0", nil)
			runHostileWorker(t, w, c.bytes, c.drop, c.kill, c.live)
		})
	}
}

func runHostileWorker(t *testing.T, w *rawWorker, bytes func(hostileWorker) []byte, drop string, kill uint64, live bool) {
	lanes := map[uint64]*rawLane{}
	for range 2 {
		l := w.lane(t)
		lanes[l.peer.Serial] = l
	}
	h := hostileWorker{w: w}
	var other, minted *InStream
	h.in, h.terms = w.mint(t, MintOptions{})
	other, h.other = w.mint(t, MintOptions{})
	minted, h.minted = w.mint(t, MintOptions{})
	for _, s := range []*InStream{h.in, other, minted} {
		defer s.Close()
	}
	h.lane = lanes[h.terms.Serial]
	quiet := lanes[h.other.Serial]
	if h.lane == quiet || h.minted.Serial != h.terms.Serial {
		t.Fatalf("streams were placed on lanes %d, %d, %d", h.terms.Serial, h.other.Serial, h.minted.Serial)
	}
	for l, terms := range map[*rawLane]wire.Terms{h.lane: h.terms, quiet: h.other} {
		l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key), data(wire.Data, terms.Slot, []byte("first")))
	}
	for _, s := range []*InStream{h.in, other} {
		if rec, err := s.Next(t.Context()); err != nil || string(rec) != "first" {
			t.Fatalf("first record: %q, %v", rec, err)
		}
	}

	h.lane.send(t, bytes(h))
	switch {
	case drop != "" || live:
		if !h.lane.alive(t) {
			t.Fatal("the lane died")
		}
		if drop != "" && w.recv.Stats().RecordsDropped[drop] != 1 {
			t.Errorf("not counted as %s: %v", drop, w.recv.Stats().RecordsDropped)
		}
		if h.in.End() != nil {
			t.Errorf("the stream ended: %+v", h.in.End())
		}
		if kill != 0 {
			h.lane.await(t, "KILL", ofNumber(wire.Kill, kill))
		} else if n := h.lane.count(wire.Kill); n != 0 {
			t.Errorf("%d KILLs were sent", n)
		}
	default:
		h.lane.dead(t)
		waitFor(t, "the stream's end", func() bool { return h.in.End() != nil })
		if e := h.in.End(); e.Type != EndProtocol {
			t.Errorf("the lane's stream ended as %s (%s), expected protocol", e.Type, e.Text)
		}
		if n := w.recv.Stats().LaneDeaths[deathProtocol]; n != 1 {
			t.Errorf("%d deaths are counted as protocol", n)
		}
		if _, ok := quiet.await(t, "KILL on the other lane", ofNumber(wire.Kill, h.terms.Number)); !ok {
			t.Fatal("the other lane died")
		}
		quiet.send(t, end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: EndKilled}))
	}
	quiet.send(t, data(wire.Data, h.other.Slot, []byte("still here")))
	if rec, err := other.Next(t.Context()); err != nil || string(rec) != "still here" {
		t.Errorf("the neighbour on another lane: %q, %v", rec, err)
	}
}

// A lane that the worker refuses moves its streams; a link that it does not know is lost, and a new one is made.
func TestGoAwayOfAWorker(t *testing.T) {
	for _, c := range []struct {
		name string
		code wire.GoAwayCode
		lost bool
	}{
		{"protocol", wire.AwayProtocol, false},
		{"an unknown code", 999, false},
		{"unknown link", wire.AwayUnknownLink, true},
		{"closing", wire.AwayClosing, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, nil)
			first := w.lane(t)
			in, terms := w.mint(t, MintOptions{})
			defer in.Close()
			first.send(t, wire.AppendGoAway(nil, c.code, "\xff\x00 not text"))
			next := w.lane(t)
			if c.lost {
				waitFor(t, "the end", func() bool { return in.End() != nil })
				if in.End().Type != EndLost {
					t.Errorf("ended as %s", in.End().Type)
				}
				if next.peer.PeerSecret != [16]byte{} || next.peer.Link == first.peer.Link {
					t.Errorf("link %d followed link %d", next.peer.Link, first.peer.Link)
				}
				return
			}
			if w.recv.Stats().LaneDeaths[deathRefused] != 1 {
				t.Errorf("deaths: %v", w.recv.Stats().LaneDeaths)
			}
			next.await(t, "RESUME", func(r rawRecord) bool { return r.Kind == wire.Resume && r.Slot == terms.Slot })
		})
	}
}

// KILLs that answer OPENs of slots that nobody uses are bounded while the worker reads nothing.
func TestStrayKillsAreBounded(t *testing.T) {
	w := newRawWorker(t, Config{}, memory.Config{Buffer: 4 << 10}, nil)
	l := w.lane(t)
	front := w.net.Conns()[0]
	front.Stall() // what the frontend writes stays in the lane
	var b []byte
	const opens = 20_000
	for i := range uint32(opens) {
		b = wire.AppendOpen(b, free(i+1), uint64(i+1), 1)
	}
	l.send(t, b)
	dropped := func() uint64 { return w.recv.Stats().RecordsDropped[dropFree] }
	waitFor(t, "all OPENs are dropped", func() bool { return dropped() == opens })
	over := w.recv.Stats().RecordsDropped[dropOverrun]
	if kills := uint64(maxStray + (urgentPerWrite+4<<10)/16 + 2*maxStray); over < opens-kills {
		t.Errorf("only %d of %d answers were dropped", over, opens)
	}
	front.Release()
	if !l.alive(t) {
		t.Fatal("the lane died")
	}
}

// The model's case, on the real code: one index is used 300 times, so its generation wraps, and after each use a lane that the
// streams have left, and the one that they are on, bring late records of every earlier use. Not one is delivered.
func TestRecordOfAnotherRequestIsNeverDelivered(t *testing.T) {
	w := newRawWorker(t, Config{Lanes: 2, GapMax: -1}, memory.Config{}, nil)
	lanes := map[uint64]*rawLane{}
	for range 2 {
		l := w.lane(t)
		lanes[l.peer.Serial] = l
	}
	type use struct{ terms wire.Terms }
	var uses []use
	late := func(l *rawLane, now wire.Slot) {
		for _, u := range uses {
			if u.terms.Slot != now && len(uses)-int(u.terms.Number) > 8 {
				continue // the same generation, and the most recent ones
			}
			l.send(t, wire.AppendOpen(nil, u.terms.Slot, u.terms.Number, u.terms.Key), data(wire.Data, u.terms.Slot, []byte("another request's")),
				end(u.terms.Slot, complete(u.terms.Number, 1, 17)))
		}
		if !l.alive(t) {
			t.Fatal("the lane died")
		}
	}
	for i := range 300 {
		in, terms := w.mint(t, MintOptions{})
		if terms.Slot.Index() != 1 {
			t.Fatalf("use %d has slot %d", i, terms.Slot.Index())
		}
		on := lanes[terms.Serial]
		for _, l := range lanes {
			late(l, terms.Slot)
		}
		mine := []byte{byte(i), byte(i >> 8)}
		on.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
		for _, l := range lanes {
			if l != on {
				late(l, terms.Slot)
			}
		}
		on.send(t, data(wire.Data, terms.Slot, mine))
		if i%3 == 0 { // a use that is given up: the slot waits for its END
			if rec, err := in.Next(t.Context()); err != nil || !bytes.Equal(rec, mine) {
				t.Fatalf("use %d: %q, %v", i, rec, err)
			}
			_ = in.Close()
			on.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
			on.send(t, end(terms.Slot, wire.EndBody{Number: terms.Number, Type: EndKilled}))
		} else {
			on.send(t, end(terms.Slot, complete(terms.Number, 1, 2)))
			if rec, err := in.Next(t.Context()); err != nil || !bytes.Equal(rec, mine) {
				t.Fatalf("use %d: %q, %v", i, rec, err)
			}
			if rec, err := in.Next(t.Context()); err == nil {
				t.Fatalf("use %d got a second record: %q", i, rec)
			}
			_ = in.Close()
		}
		waitFor(t, "the slot is free", func() bool { return w.recv.Stats().OpenStreams == 0 })
		uses = append(uses, use{terms})
	}
}
