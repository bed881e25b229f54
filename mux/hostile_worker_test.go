package mux

import (
	"bytes"
	"math"
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// hostileWorker is what a case of the table has to work with: a live stream on the lane it may break, another there
// that has no OPEN yet, and one on the link's other lane.
type hostileWorker struct {
	terms  wire.Terms
	minted wire.Terms
	other  wire.Terms
}

func free(index uint32) wire.Slot { return wire.MakeSlot(index, 1) }

var hostileWorkerCases = []struct {
	name  string
	bytes func(h hostileWorker) []byte
	ends  whose
	drop  string                           // with endsNothing: this counter grows
	free  bool                             // with endsStream: the record was its END, so no KILL follows
	of    func(h hostileWorker) wire.Terms // with endsStream: which, the live one if nil
}{
	{name: "CONSUMED from a worker", bytes: func(h hostileWorker) []byte {
		return wire.AppendConsumed(nil, h.terms.Slot, 1, 1)
	}},
	{name: "STOP from a worker", bytes: func(h hostileWorker) []byte {
		return wire.AppendStop(nil, h.terms.Slot, 1)
	}},
	{name: "KILL from a worker", bytes: func(h hostileWorker) []byte {
		return wire.AppendKill(nil, h.terms.Slot, 1, EndKilled)
	}},
	{name: "GRANT from a worker", bytes: func(hostileWorker) []byte {
		return wire.AppendGrant(nil, [16]byte{1}, wire.GrantBusy, nil)
	}},
	{name: "unknown kind", bytes: func(h hostileWorker) []byte { return header(0x7f, 0, h.terms.Slot) }},
	{name: "kind zero", bytes: func(hostileWorker) []byte { return make([]byte, 64) }},
	{name: "text", bytes: func(hostileWorker) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }},
	{name: "DATA of slot 0", bytes: func(hostileWorker) []byte { return data(wire.Data, 0, []byte("x")) }},
	{name: "DATA of index 0", bytes: func(hostileWorker) []byte { return data(wire.Data, 3, []byte("x")) }},
	{name: "PONG with a slot", bytes: func(h hostileWorker) []byte { return zeros(wire.Pong, 16, h.terms.Slot) }},
	{name: "PONG that is too long", bytes: func(hostileWorker) []byte { return zeros(wire.Pong, 17, 0) }},
	{name: "ACK past what was sent", bytes: func(hostileWorker) []byte { return wire.AppendAck(nil, 1<<40) }},
	{name: "DATA over 64 KiB, unsent", bytes: func(h hostileWorker) []byte {
		return header(wire.Data, wire.MaxData-wire.HeaderSize+1, h.terms.Slot)
	}},
	{name: "DATA of 16 MiB, unsent", bytes: func(h hostileWorker) []byte {
		return header(wire.Data, wire.MaxLength, h.terms.Slot)
	}},
	{name: "DATA of a free slot over 64 KiB, unsent", bytes: func(hostileWorker) []byte {
		return header(wire.Data, wire.MaxLength, free(99))
	}},
	{name: "END over 20 KiB, unsent", bytes: func(h hostileWorker) []byte {
		return header(wire.End, wire.MaxEnd+1, h.terms.Slot)
	}},
	{name: "OPEN that is too short", bytes: func(h hostileWorker) []byte {
		return zeros(wire.Open, 8, h.terms.Slot)
	}},
	{name: "END of type 0", bytes: func(h hostileWorker) []byte {
		return end(h.terms.Slot, wire.EndBody{Number: h.terms.Number})
	}},
	{name: "END of type 200", bytes: func(h hostileWorker) []byte {
		return end(h.terms.Slot, wire.EndBody{Number: h.terms.Number, Type: 200})
	}},
	{name: "END that is too short", bytes: func(h hostileWorker) []byte {
		return zeros(wire.End, 29, h.terms.Slot)
	}},
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
	{name: "HELLO twice", bytes: func(hostileWorker) []byte {
		return wire.AppendHello(nil, &wire.HelloBody{Lowest: 1, Highest: 1})
	}},
	{name: "GOAWAY without a code", bytes: func(hostileWorker) []byte { return header(wire.GoAway, 0, 0) }},
	{name: "CLAIM that is too short", bytes: func(hostileWorker) []byte { return zeros(wire.Claim, 15, 0) }},

	{name: "DATA over half the window", ends: endsStream, bytes: func(h hostileWorker) []byte {
		return data(wire.Data, h.terms.Slot, make([]byte, 32<<10))
	}},
	{name: "DATA over the window", ends: endsStream, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.Data, h.terms.Slot, make([]byte, 30<<10)), 3)
	}},
	{name: "empty DATA over the window", ends: endsStream, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.Data, h.terms.Slot, nil), 9000)
	}},
	{name: "fragments beyond the longest record", ends: endsStream, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.DataMore, h.terms.Slot, make([]byte, 30<<10)), 4)
	}},
	{name: "a last part beyond the longest record", ends: endsStream, bytes: func(h hostileWorker) []byte {
		b := bytes.Repeat(data(wire.DataMore, h.terms.Slot, make([]byte, 25<<10)), 4)
		return append(b, data(wire.Data, h.terms.Slot, make([]byte, 1))...)
	}},
	{name: "OPEN twice", ends: endsStream, bytes: func(h hostileWorker) []byte {
		return wire.AppendOpen(nil, h.terms.Slot, h.terms.Number, h.terms.Key)
	}},
	{name: "END that counts too many records", ends: endsStream, free: true, bytes: func(h hostileWorker) []byte {
		return end(h.terms.Slot, complete(h.terms.Number, 2, 5))
	}},
	{name: "END that counts too few bytes", ends: endsStream, free: true, bytes: func(h hostileWorker) []byte {
		return end(h.terms.Slot, complete(h.terms.Number, 1, 4))
	}},
	{name: "END complete in the middle of a record", ends: endsStream, free: true, bytes: func(h hostileWorker) []byte {
		return append(data(wire.DataMore, h.terms.Slot, []byte("x")),
			end(h.terms.Slot, complete(h.terms.Number, 1, 5))...)
	}},
	{name: "END complete without OPEN", ends: endsStream, free: true,
		of:    func(h hostileWorker) wire.Terms { return h.minted },
		bytes: func(h hostileWorker) []byte { return end(h.minted.Slot, complete(h.minted.Number, 0, 0)) }},

	{name: "DATA of a free slot", ends: endsNothing, drop: dropFree, bytes: func(hostileWorker) []byte {
		return data(wire.Data, free(99), []byte("x"))
	}},
	{name: "DATA of slot 10 million", ends: endsNothing, drop: dropFree, bytes: func(hostileWorker) []byte {
		return data(wire.Data, free(10_000_000), []byte("x"))
	}},
	{name: "DATA of another generation", ends: endsNothing, drop: dropFree, bytes: func(h hostileWorker) []byte {
		return data(wire.Data, wire.MakeSlot(h.terms.Slot.Index(), h.terms.Slot.Generation()+1), []byte("x"))
	}},
	{name: "END of a free slot", ends: endsNothing, drop: dropFree, bytes: func(hostileWorker) []byte {
		return end(free(99), complete(99, 0, 0))
	}},
	{name: "OPEN of a free slot", ends: endsNothing, drop: dropFree, bytes: func(hostileWorker) []byte {
		return wire.AppendOpen(nil, free(99), 99, 1)
	}},
	{name: "OPEN of slot 10 million", ends: endsNothing, drop: dropFree, bytes: func(hostileWorker) []byte {
		return wire.AppendOpen(nil, free(10_000_000), 99, 1)
	}},
	{name: "OPEN with a wrong key", ends: endsNothing, drop: dropKey, bytes: func(h hostileWorker) []byte {
		return wire.AppendOpen(nil, h.minted.Slot, h.minted.Number, h.minted.Key+1)
	}},
	{name: "OPEN with a wrong number", ends: endsNothing, drop: dropKey, bytes: func(h hostileWorker) []byte {
		return wire.AppendOpen(nil, h.minted.Slot, math.MaxUint64, h.minted.Key)
	}},
	{name: "DATA before OPEN", ends: endsNothing, drop: dropEarly, bytes: func(h hostileWorker) []byte {
		return data(wire.Data, h.minted.Slot, []byte("x"))
	}},
	{name: "END of another number", ends: endsNothing, drop: dropStale, bytes: func(h hostileWorker) []byte {
		return end(h.terms.Slot, complete(h.terms.Number+9, 1, 5))
	}},
	{name: "DATA of a stream on another lane", ends: endsNothing, drop: dropStale, bytes: func(h hostileWorker) []byte {
		return data(wire.Data, h.other.Slot, []byte("x"))
	}},
	{name: "END of a stream on another lane", ends: endsNothing, drop: dropStale, bytes: func(h hostileWorker) []byte {
		return end(h.other.Slot, complete(h.other.Number, 1, 5))
	}},
	{name: "END twice", ends: endsNothing, drop: dropFree, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(end(h.minted.Slot, wire.EndBody{Number: h.minted.Number, Type: EndRefused}), 2)
	}},
	{name: "a kind that is skipped, with 1 MiB", ends: endsNothing, bytes: func(hostileWorker) []byte {
		return zeros(0xff, 1<<20, 5)
	}},
	{name: "empty fragments without end", ends: endsNothing, bytes: func(h hostileWorker) []byte {
		return bytes.Repeat(data(wire.DataMore, h.terms.Slot, nil), 20_000)
	}},
	{name: "PONGs that nobody asked for", ends: endsNothing, bytes: func(hostileWorker) []byte {
		return append(wire.AppendPing(nil, wire.Pong, 0, 0), wire.AppendPing(nil, wire.Pong, math.MaxUint64, 0)...)
	}},
}

// Every malformed or illegal record of a worker ends what it must and no more: its link, typed, counted and said by
// GOAWAY, with that link's streams; or its stream, with KILL. What is only stale is dropped and counted. After the end
// of a link the node is served by the next one.
func TestHostileWorker(t *testing.T) {
	for _, c := range hostileWorkerCases {
		for _, try := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				w := newRawWorker(t, hostileWorkerConfig, memory.Config{TryWrite: try}, nil)
				runHostileWorker(t, w, c.bytes, c.ends, c.drop, c.free, c.of)
			})
		}
	}
}

func TestHostileWorkerOverTCP(t *testing.T) {
	for _, c := range hostileWorkerCases {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorkerOver(t, transport.PlaneTCP, hostileWorkerConfig, nil)
			runHostileWorker(t, w, c.bytes, c.ends, c.drop, c.free, c.of)
		})
	}
}

var hostileWorkerConfig = Config{Lanes: 2, GapMax: -1, MaxRecord: 100 << 10}

func runHostileWorker(t *testing.T, w *rawWorker, bytes func(hostileWorker) []byte, ends whose, drop string, free bool,
	of func(hostileWorker) wire.Terms) {
	lanes := map[uint16]*rawLane{}
	for range 2 {
		l := w.lane(t)
		lanes[l.peer.Lane] = l
	}
	var h hostileWorker
	var in, other, minted *InStream
	in, h.terms = w.mint(t, MintOptions{})
	other, h.other = w.mint(t, MintOptions{})
	minted, h.minted = w.mint(t, MintOptions{})
	all := map[uint64]*InStream{h.terms.Number: in, h.other.Number: other, h.minted.Number: minted}
	for _, s := range all {
		defer s.Close()
	}
	lane, quiet := lanes[h.terms.Lane], lanes[h.other.Lane]
	if lane == quiet || h.minted.Lane != h.terms.Lane {
		t.Fatalf("streams were placed on lanes %d, %d, %d", h.terms.Lane, h.other.Lane, h.minted.Lane)
	}
	for l, terms := range map[*rawLane]wire.Terms{lane: h.terms, quiet: h.other} {
		l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key),
			data(wire.Data, terms.Slot, []byte("first")))
	}
	for _, s := range []*InStream{in, other} {
		if rec, err := s.Next(t.Context()); err != nil || string(rec) != "first" {
			t.Fatalf("first record: %q, %v", rec, err)
		}
	}

	lane.send(t, bytes(h))
	switch ends {
	case endsLink:
		lane.dead(t)
		quiet.dead(t)
		for _, s := range all {
			waitFor(t, "the streams' ends", func() bool { return s.End() != nil })
			if e := s.End(); e.Type != EndProtocol {
				t.Errorf("a stream of the link ended as %s (%s), expected protocol", e.Type, e.Text)
			}
		}
		if n := w.recv.Stats().LaneDeaths[pipe.DownProtocol]; n != 1 {
			t.Errorf("%d deaths are counted as protocol", n)
		}
		if quiet.count(wire.GoAway) != 1 {
			t.Error("the link's other lane was not told why")
		}
		quiet = w.lane(t)
		if quiet.peer.Link == lane.peer.Link {
			t.Error("the link goes on")
		}
		var err error
		waitFor(t, "the next link", func() bool {
			other, err = w.recv.Mint(t.Context(), w.id, MintOptions{})
			return err == nil
		})
		defer other.Close()
		if h.other, err = wire.ParseTerms(other.Terms()); err != nil {
			t.Fatal(err)
		}
		for h.other.Lane != quiet.peer.Lane {
			quiet = w.lane(t)
		}
		quiet.send(t, wire.AppendOpen(nil, h.other.Slot, h.other.Number, h.other.Key))
	case endsStream:
		terms := h.terms
		if of != nil {
			terms = of(h)
		}
		s := all[terms.Number]
		waitFor(t, "the stream's end", func() bool { return s.End() != nil })
		if e := s.End(); e.Type != EndProtocol {
			t.Errorf("the stream ended as %s (%s), expected protocol", e.Type, e.Text)
		}
		if !free {
			if _, ok := lane.await(t, "KILL", ofNumber(wire.Kill, terms.Number)); !ok {
				t.Fatal("the lane died")
			}
			lane.send(t, end(terms.Slot, wire.EndBody{Number: terms.Number, Type: EndKilled}))
		}
		if !lane.alive(t) {
			t.Fatal("the lane died")
		}
		if n := w.recv.Stats().ClosingSlots; n != 0 {
			t.Errorf("%d slots are not free after END", n)
		}
	default:
		if !lane.alive(t) {
			t.Fatal("the lane died")
		}
		if drop != "" && w.recv.Stats().RecordsDropped[drop] != 1 {
			t.Errorf("not counted as %s: %v", drop, w.recv.Stats().RecordsDropped)
		}
		if in.End() != nil {
			t.Errorf("the stream ended: %+v", in.End())
		}
		if n := lane.count(wire.Kill); n != 0 {
			t.Errorf("%d KILLs were sent", n)
		}
	}
	quiet.send(t, data(wire.Data, h.other.Slot, []byte("still here")))
	if rec, err := other.Next(t.Context()); err != nil || string(rec) != "still here" {
		t.Errorf("another stream: %q, %v", rec, err)
	}
}

// A link that the worker ends is over and the next one has another number; one that it only drains goes on.
func TestGoAwayOfAWorker(t *testing.T) {
	for _, c := range []struct {
		name string
		code wire.GoAwayCode
		ends EndType // 0: nothing ends, the lane goes on over another connection
	}{
		{"protocol", wire.AwayProtocol, EndProtocol},
		{"an unknown code", 999, 0},
		{"limit", wire.AwayLimit, 0},
		{"unknown link", wire.AwayUnknownLink, EndLost},
		{"closing", wire.AwayClosing, EndLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, nil)
			first := w.lane(t)
			in, _ := w.mint(t, MintOptions{})
			defer in.Close()
			first.send(t, wire.AppendGoAway(nil, c.code, "\xff\x00 not text"))
			next := w.lane(t)
			if c.ends == 0 {
				if in.End() != nil || next.peer.Link != first.peer.Link || next.peer.Serial <= first.peer.Serial {
					t.Errorf("link %d went on as %d, the stream's end is %v", first.peer.Link, next.peer.Link, in.End())
				}
				if w.recv.Stats().LaneDeaths[pipe.DownRefused] != 1 {
					t.Errorf("deaths: %v", w.recv.Stats().LaneDeaths)
				}
				return
			}
			waitFor(t, "the end", func() bool { return in.End() != nil })
			if in.End().Type != c.ends {
				t.Errorf("ended as %s, expected %s", in.End().Type, c.ends)
			}
			if next.peer.PeerSecret != [16]byte{} || next.peer.Link == first.peer.Link {
				t.Errorf("link %d followed link %d", next.peer.Link, first.peer.Link)
			}
		})
	}
}

// The model's case, on the real code: one index is used 300 times, so its generation wraps, and in each use both lanes
// bring late records of every earlier use with the same generation, and of the last ones. Not one is delivered.
func TestRecordOfAnotherRequestIsNeverDelivered(t *testing.T) {
	w := newRawWorker(t, Config{Lanes: 2, GapMax: -1}, memory.Config{}, nil)
	lanes := map[uint16]*rawLane{}
	for range 2 {
		l := w.lane(t)
		lanes[l.peer.Lane] = l
	}
	var uses []wire.Terms
	late := func(l *rawLane, now wire.Slot) {
		for _, u := range uses {
			if u.Slot != now && len(uses)-int(u.Number) > 8 {
				continue
			}
			l.send(t, wire.AppendOpen(nil, u.Slot, u.Number, u.Key),
				data(wire.Data, u.Slot, []byte("another request's")), end(u.Slot, complete(u.Number, 1, 17)))
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
		on := lanes[terms.Lane]
		for _, l := range lanes {
			late(l, terms.Slot)
		}
		mine := []byte{byte(i), byte(i >> 8)}
		on.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
		for _, l := range lanes {
			if l != on { // on its own lane nothing of an earlier use comes after its OPEN: a lane is one string
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
		uses = append(uses, terms)
	}
}

// A link is seen by nobody before all of its lanes are there, at neither side: whoever looks meanwhile finds whole
// ones.
func TestStatsWhileLinksBegin(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{Lanes: MaxLanes}})
	stop := make(chan struct{})
	var looks sync.WaitGroup
	for _, look := range []func(){func() { p.recv.Stats() }, func() { p.send.Stats() }} {
		looks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					look()
				}
			}
		})
	}
	peer := Peer{ID: p.id, Planes: []PeerPlane{{Plane: transport.PlaneMemory, Endpoints: p.endpoints}}}
	for range 200 {
		p.recv.RemovePeer(p.id)
		if err := p.recv.AddPeer(peer); err != nil {
			t.Fatal(err)
		}
		if err := p.recv.Await(t.Context(), p.id); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	looks.Wait()
}
