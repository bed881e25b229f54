package mux

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// script is a fuzzed program of a hostile peer.
type script struct{ b []byte }

func (s *script) more() bool { return len(s.b) > 0 }

func (s *script) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c
}

func (s *script) take(n int) []byte {
	n = min(n, len(s.b))
	b := s.b[:n]
	s.b = s.b[n:]
	return b
}

// number is mostly small, at times at the edge.
func (s *script) number() uint64 {
	switch c := s.byte(); {
	case c == 255:
		return math.MaxUint64
	case c >= 240:
		return uint64(s.byte())<<8 | uint64(s.byte())
	default:
		return uint64(c)
	}
}

func (s *script) slot() wire.Slot {
	c := s.byte()
	if c == 255 {
		return wire.Slot(uint32(s.byte())<<24 | uint32(s.byte())<<16 | uint32(s.byte()))
	}
	return wire.MakeSlot(uint32(c%8), c>>5)
}

// maxSteps bounds a script, so that an input costs milliseconds.
const maxSteps = 300

// FuzzHostileFrontend runs a WorkerNode whose frontend follows the script, and uses the WorkerNode's streams in
// between. Whatever it does: no panic, Close joins, nothing is left, every stream has one end.
func FuzzHostileFrontend(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 20, 3, 32, 44, 5, 33, 1})
	f.Add([]byte{0, 1, 0, 2, 1, 0, 99, 1, 1, 99, 12, 13, 6, 33, 1, 1, 24, 24, 11, 14, 12, 6, 66, 2, 1, 40, 0, 2, 0, 0,
		2, 1,
		1, 11})
	f.Add([]byte{6, 33, 1, 1, 0, 0, 4, 33, 1, 0, 1, 1, 0, 200, 6, 33, 1, 2, 27, 25, 1, 0, 250, 11})
	f.Add([]byte("\x07\x20GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &script{b}
		cfg := Config{GapMax: -1, MaxStreams: 16, MaxReplay: 1 << 20, Log: wire.MinLog}
		fr := newRawFront(t, cfg, memory.Config{TryWrite: len(b)%2 == 0, Buffer: 1 << (8 + len(b)%8)})
		fr.lanes = 2
		lanes := []*rawLane{fr.lane(t)}
		lane := lanes[0]
		var outs []*OutStream
		out := func(use func(*OutStream)) {
			if n := len(outs); n > 0 {
				use(outs[int(s.byte())%n])
			}
		}
		send := func(b []byte) { _, _ = lane.conn.Write(b) }
		for step := 0; s.more() && step < maxSteps; step++ {
			switch op := s.byte() % 16; op {
			case 0:
				number := s.number()
				terms := wire.Terms{Frontend: frontID, Worker: workerID, Link: 1, Slot: s.slot(), Number: number,
					Lane: lane.peer.Lane, Window: 4 << 10}
				encoded := fr.mint(&terms)
				if number%8 == 7 { // forged
					encoded[wire.TermsSize-1]++
				}
				o, err := fr.send.Attach(encoded)
				switch {
				case err == nil && number%8 == 7:
					t.Error("forged terms were taken")
				case err == nil && len(outs) < 64:
					o.OnWritable(func() {})
					outs = append(outs, o)
				}
			case 1:
				out(func(o *OutStream) { _ = o.TrySend(make([]byte, int(s.byte())*16)) })
			case 2:
				out(func(o *OutStream) { _ = o.Fail(End{Type: EndType(s.byte() % 10), Text: "x"}) })
			case 3:
				send(wire.AppendConsumed(nil, s.slot(), s.number(), s.number()))
			case 4:
				send(wire.AppendStop(nil, s.slot(), s.number()))
			case 5:
				send(wire.AppendKill(nil, s.slot(), s.number(), EndType(s.byte())))
			case 6:
				if number := s.number(); number%2 == 0 {
					send(wire.AppendAck(nil, number))
				} else {
					code := wire.GrantCode(s.byte() % 5)
					send(wire.AppendGrant(nil, [16]byte{byte(number)}, code, s.take(int(s.byte()))))
				}
			case 7:
				send(s.take(int(s.byte())))
			case 8:
				send(wire.AppendPing(nil, wire.Ping, s.number(), 0))
			case 9:
				send(wire.AppendGoAway(nil, wire.GoAwayCode(s.number()), "away"))
			case 10:
				send(header(wire.Kind(s.byte()), int(s.number()&wire.MaxLength), s.slot()))
			case 11:
				_ = fr.send.Stats()
				fr.send.Flush()
			case 12: // another connection, of one lane or the other
				if len(lanes) < 6 {
					h := fr.hello()
					h.Lane = uint16(len(lanes) % 2)
					h.Received = s.number() % 32
					l := fr.dial(t)
					if fr.greet(t, l, h) != nil {
						_ = l.conn.Close()
						continue
					}
					l.pump()
					t.Cleanup(func() { _ = l.conn.Close(); <-l.done })
					lanes = append(lanes, l)
					lane = l
				}
			case 13:
				lane = lanes[int(s.byte())%len(lanes)]
			case 14:
				_ = lane.conn.Close()
			case 15:
				out(func(o *OutStream) {
					if o.Err() == nil && !o.Stopping() {
						o.Abandon()
					}
				})
			}
		}
		// The bytes are read by now, or soon; the WorkerNode closes in the middle of it or after it.
		if len(b)%3 == 0 {
			for _, l := range lanes {
				_ = l.conn.CloseWrite()
			}
			waitFor(t, "the connections end", func() bool {
				for _, l := range fr.send.Stats().Lanes {
					if l.Up {
						return false
					}
				}
				return true
			})
		}
	})
}

// FuzzHostileWorker runs a FrontendNode whose worker follows the script, and uses its streams in between.
func FuzzHostileWorker(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 2, 0, 5, 4, 0, 1, 6, 0})
	f.Add([]byte{0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 3, 0, 9, 2, 0, 9, 4, 0, 0, 5, 1, 6, 1, 7, 0, 8, 0})
	f.Add([]byte{0, 0, 1, 0, 0, 14, 1, 0, 0, 2, 0, 5, 14, 14, 2, 1})
	f.Add([]byte{0, 0, 1, 0, 1, 11, 64, 'H', 'T', 'T', 'P', '/', '1', '.', '1', ' ', '4', '0', '0'})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &script{b}
		w := newRawWorker(t, Config{Lanes: 1 + len(b)%2, GapMax: -1, Window: 4 << 10, MaxRecord: 6000},
			memory.Config{TryWrite: len(b)%2 == 0, Buffer: 1 << (8 + len(b)%8)}, nil)
		t.Cleanup(func() { // runs before the FrontendNode is closed
			closeInTime(t, "FrontendNode", w.recv)
		})
		var lane *rawLane
		next := func() bool {
			select {
			case lane = <-w.lanes:
				return true
			case <-time.After(20 * time.Millisecond):
				return lane != nil
			}
		}
		for lane == nil {
			next()
		}
		type minted struct {
			in    *InStream
			terms wire.Terms
			n     uint64 // records and bytes that were sent
			bytes uint64
		}
		var all []*minted
		pick := func(use func(*minted)) {
			if n := len(all); n > 0 {
				use(all[int(s.byte())%n])
			}
		}
		send := func(b []byte) { _, _ = lane.conn.Write(b) }
		for step := 0; s.more() && step < maxSteps; step++ {
			switch s.byte() % 16 {
			case 0:
				mode := s.byte()
				in, err := w.recv.Mint(context.Background(), workerID, MintOptions{})
				if err != nil || len(all) > 64 {
					if err == nil {
						_ = in.Close()
					}
					continue
				}
				terms, err := wire.ParseTerms(in.Terms())
				if err != nil {
					t.Fatal(err)
				}
				if mode%2 == 1 {
					calls, told := 0, false
					in.onRecords(func(_ [][]byte, end *End) bool {
						if told {
							t.Error("the sink was told twice of its end")
						}
						told = end != nil
						calls++
						return calls%3 != int(mode>>1)%4
					})
				}
				all = append(all, &minted{in: in, terms: terms})
			case 1:
				pick(func(m *minted) {
					send(wire.AppendOpen(nil, m.terms.Slot, m.terms.Number, m.terms.Key+uint64(s.byte()%8/7)))
				})
			case 2, 3:
				pick(func(m *minted) {
					n := int(s.byte())
					m.n, m.bytes = m.n+1, m.bytes+uint64(n)
					send(data(wire.Data, m.terms.Slot, make([]byte, n)))
				})
			case 4:
				pick(func(m *minted) {
					n := int(s.byte()) * 8
					m.bytes += uint64(n)
					send(data(wire.DataMore, m.terms.Slot, make([]byte, n)))
				})
			case 5:
				pick(func(m *minted) {
					t := EndType(s.byte() % 10)
					send(end(m.terms.Slot, wire.EndBody{Number: m.terms.Number, Type: t, Records: m.n, Bytes: m.bytes}))
				})
			case 6:
				pick(func(m *minted) { _, _ = m.in.NextBatch(gone) })
			case 7:
				pick(func(m *minted) { m.in.Stop() })
			case 8:
				pick(func(m *minted) { m.in.Kill(End{Type: EndType(s.byte())}) })
			case 9:
				pick(func(m *minted) { _ = m.in.Close() })
			case 10:
				send(header(wire.Kind(s.byte()), int(s.number()&wire.MaxLength), s.slot()))
			case 11:
				send(s.take(int(s.byte())))
			case 12:
				send(wire.AppendGoAway(nil, wire.GoAwayCode(s.byte()%8), "away"))
			case 13:
				_ = w.recv.Stats()
				if v := s.number(); v%2 == 0 {
					send(wire.AppendPing(nil, wire.Ping, v, 0))
				} else {
					send(wire.AppendClaim(nil, [16]byte{byte(v)}))
				}
			case 14:
				if s.byte()%2 == 0 {
					_ = lane.conn.Close()
				}
				next()
			case 15:
				send(wire.AppendOpen(nil, s.slot(), s.number(), s.number()))
			}
		}
		closeInTime(t, "FrontendNode", w.recv)
		for _, m := range all {
			_ = m.in.Close()
			if m.in.End() == nil {
				t.Error("a stream has no end")
			}
		}
		checkEmpty(t, "frontend", w.recv.Stats())
	})
}
