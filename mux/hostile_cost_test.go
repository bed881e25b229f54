package mux

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// socketPlanes are those on which what a hostile peer may cost is measured.
var socketPlanes = allPlanes[1:]

// onSockets runs a test on each of them.
func onSockets(t *testing.T, run func(t *testing.T, plane string)) {
	for _, plane := range socketPlanes {
		t.Run("plane="+plane, func(t *testing.T) { run(t, plane) })
	}
}

// bareWorker starts a FrontendNode and a listener whose connections serve gets once HELLO was read, with the answer
// that is due. They are closed when it returns.
func bareWorker(t *testing.T, plane string, cfg Config,
	serve func(conn transport.Conn, own *wire.HelloBody)) *FrontendNode {
	t.Helper()
	front, frontID := newNode(t, plane)
	work, workerID := newNode(t, plane)
	cfg.ID = frontID
	ln, err := work.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	recv, err := NewFrontendNode(cfg, front)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				h, err := pipe.ReadHello(conn)
				if err != nil {
					return
				}
				own := answerTo(h, workerID)
				serve(conn, &own)
			})
		}
	})
	peer := Peer{ID: workerID, Planes: []PeerPlane{{Plane: plane, Endpoints: []string{ln.Endpoints()[0].String()}}}}
	if err := recv.AddPeer(peer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeInTime(t, "FrontendNode", recv)
		_ = ln.Close()
		_ = front.Close()
		_ = work.Close()
		wg.Wait()
	})
	return recv
}

// What a peer that never reads costs a worker by KILLs of slots that it has not seen: of an index 8 bytes for good and
// at most 8 while its END is owed, and what the lane's log may hold. That is at most 4 times what the peer sent; on
// QUIC 6 times with what waits unread at the peer, which is in this process too. Once it reads it gets an END for each.
func TestKillStormThatReadsNothing(t *testing.T) {
	links, slots := 20, uint32(60_000)
	if underRace {
		links = 4
	}
	onSockets(t, func(t *testing.T, plane string) {
		multiple := int64(4)
		if plane == transport.PlaneQUIC {
			multiple = 6
		}
		f := newRawFrontOver(t, plane, Config{MaxLinks: 2048})
		var storm []byte
		for i := range slots {
			storm = append(storm, killOf(1+i, 1)...)
		}
		var lanes []*rawLane
		for range links {
			l := f.dial(t)
			if err := f.greet(t, l, f.hello()); err != nil {
				t.Fatal(err)
			}
			lanes = append(lanes, l)
			f = f.another()
		}
		before := heap()
		var sends sync.WaitGroup
		for _, l := range lanes {
			sends.Go(func() { _, _ = l.conn.Write(storm) })
		}
		sends.Wait()
		sent := int64(links * len(storm))
		waitFor(t, "all KILLs are read", func() bool { return f.send.Stats().BytesIn >= uint64(sent) })
		grown, st := heap()-before, f.send.Stats()
		t.Logf("%d KiB for %d KiB sent, %d KiB of it logs", grown>>10, sent>>10, st.LogBytes>>10)
		if grown > multiple*sent {
			t.Errorf("%d bytes are held for %d that were sent, more than %d times as many", grown, sent, multiple)
		}
		if most := int64(links) * DefaultLog; st.LogBytes > most {
			t.Errorf("the logs hold %d bytes, at most %d are allowed", st.LogBytes, most)
		}
		l := lanes[0]
		l.pump()
		if !l.alive(t) {
			t.Fatal("the lane died")
		}
		waitFor(t, "an END for each KILL", func() bool { return l.count(wire.End) == int(slots) })
		for _, l := range lanes {
			_ = l.conn.Close()
		}
		<-l.done
	})
}

// All links together cost no more logs than the process's bound, and 128 KiB for each lane beyond it.
func TestKillStormWithinTheProcessBound(t *testing.T) {
	const links, bound, each = 40, 1 << 20, 128 << 10
	f := newRawFront(t, Config{MaxReplay: bound}, memory.Config{Buffer: 1 << 20, TryWrite: true})
	var storm []byte
	for i := range uint32(20_000) {
		storm = append(storm, killOf(1+i, 1)...)
	}
	var lanes []*rawLane
	for range links {
		l := f.dial(t)
		if err := f.greet(t, l, f.hello()); err != nil {
			t.Fatal(err)
		}
		l.send(t, storm)
		lanes = append(lanes, l)
		f = f.another()
	}
	waitFor(t, "all KILLs are read", func() bool { return f.send.Stats().BytesIn >= uint64(links*len(storm)) })
	st := f.send.Stats()
	t.Logf("%d KiB of logs", st.LogBytes>>10)
	if st.LogBytes > bound+links*each {
		t.Errorf("the logs hold %d bytes, with a bound of %d", st.LogBytes, bound)
	}
	for _, l := range lanes {
		l.pump()
	}
	for _, l := range lanes {
		waitFor(t, "an END for each KILL", func() bool {
			l.acknowledge(t)
			return l.count(wire.End) == 20_000
		})
	}
}

// CLAIMs beyond what a link may have unanswered end it, before they have cost more than a small multiple of what they
// were; as many as are allowed are answered, again and again.
func TestClaimsWithoutEnd(t *testing.T) {
	onSockets(t, func(t *testing.T, plane string) {
		const bound = 4 << 20
		claims := bytes.Repeat(wire.AppendClaim(nil, [16]byte{1}), maxClaims)
		w := newRawWorkerOver(t, plane, Config{}, nil)
		l := w.lane(t)
		for n := 1; n <= 5; n++ {
			l.send(t, claims)
			waitFor(t, "the answers", func() bool { return l.count(wire.Grant) == n*maxClaims })
		}
		if n := w.recv.Stats().LaneDeaths[pipe.DownProtocol]; n != 0 {
			t.Errorf("%d links ended for what is allowed", n)
		}

		before, sent := int64(0), make(chan int, 1)
		var once sync.Once
		recv := bareWorker(t, plane, Config{}, func(conn transport.Conn, own *wire.HelloBody) {
			_, _ = conn.Write(wire.AppendHello(nil, own))
			once.Do(func() {
				before = heap()
				n := 0
				for range 10_000 { // 10 million, 246 MB: the kernel's buffers are smaller
					m, err := conn.Write(claims)
					if n += m; err != nil {
						break
					}
				}
				sent <- n
			})
		})
		n := <-sent
		waitFor(t, "the end of the link", func() bool { return recv.Stats().LaneDeaths[pipe.DownProtocol] >= 1 })
		if grown := heap() - before; grown > bound {
			t.Errorf("%d bytes of CLAIMs cost %d bytes", n, grown)
		}
	})
}

// writes is how often a node has written.
func (s Stats) writes() (n int) {
	for _, w := range s.Writes {
		n += int(w)
	}
	return n
}

// A thousand ends cost a write for each read or pass that makes them, at both sides, not one for each.
func TestThousandEndsCostFewWrites(t *testing.T) {
	const streams = 1000
	onSockets(t, func(t *testing.T, plane string) {
		t.Run("KILLs at the worker", func(t *testing.T) {
			f := newRawFrontOver(t, plane, Config{GapMax: -1})
			l := f.lane(t)
			var kills []byte
			for i := range uint32(streams) {
				terms := f.terms(l, 1+i)
				f.attach(t, terms)
				kills = append(kills, wire.AppendKill(nil, terms.Slot, terms.Number, EndKilled)...)
			}
			before := f.send.Stats()
			l.send(t, kills)
			waitFor(t, "the ENDs", func() bool { return l.count(wire.End) == streams })
			few(t, before, f.send.Stats(), 0)
		})
		t.Run("KILLs of requests to come", func(t *testing.T) {
			f := newRawFrontOver(t, plane, Config{GapMax: -1})
			l := f.lane(t)
			var kills []byte
			for i := range uint32(streams) {
				kills = append(kills, killOf(1+i, 1)...)
			}
			before := f.send.Stats()
			l.send(t, kills)
			waitFor(t, "the ENDs", func() bool { return l.count(wire.End) == streams })
			few(t, before, f.send.Stats(), 0)
		})
		t.Run("ends of a pass at the worker, and at the frontend", func(t *testing.T) {
			p, _, _ := newPlanePair(t, plane, pairConfig{recv: Config{GapMax: -1}, send: Config{GapMax: -1}})
			var outs []*OutStream
			for i := range streams {
				in, out := p.open(t)
				outs = append(outs, out)
				in.onRecords(func(_ [][]byte, end *End) bool {
					if end != nil && i%2 == 0 {
						_ = in.Close()
					}
					return true
				})
			}
			front, work := p.recv.Stats(), p.send.Stats()
			for _, out := range outs {
				if err := out.PutEnd(End{Type: EndComplete}); err != nil {
					t.Fatal(err)
				}
			}
			p.send.Flush()
			p.settled(t)
			few(t, work, p.send.Stats(), 1)
			few(t, front, p.recv.Stats(), 0)
		})
		t.Run("broken rules at the frontend", func(t *testing.T) {
			w := newRawWorkerOver(t, plane, Config{GapMax: -1}, nil)
			l := w.lane(t)
			var opens []byte
			for range streams {
				_, terms := w.mint(t, MintOptions{})
				opens = append(opens, slices.Repeat(wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key), 2)...)
			}
			before := w.recv.Stats()
			l.send(t, opens)
			waitFor(t, "the KILLs", func() bool { return l.count(wire.Kill) == streams })
			few(t, before, w.recv.Stats(), 0)
		})
		t.Run("deadlines", func(t *testing.T) {
			w := newRawWorkerOver(t, plane, Config{GapMax: -1}, nil)
			l := w.lane(t)
			before, begun := w.recv.Stats(), time.Now()
			for range streams {
				w.mint(t, MintOptions{TimeLeft: time.Millisecond})
			}
			waitFor(t, "the KILLs", func() bool { return l.count(wire.Kill) == streams })
			few(t, before, w.recv.Stats(), 2+int(time.Since(begun)/(250*time.Millisecond))) // passes over all streams
		})
	})
}

// few checks that a node has written at most once for each read and pass. PINGs are writes of their own, and what
// does not fit is one more.
func few(t *testing.T, before, after Stats, passes int) {
	t.Helper()
	const others = 100 // a tenth of the ends, however slow the machine is
	writes, reads := after.writes()-before.writes(), int(after.Reads-before.Reads)
	t.Logf("%d writes, %d reads", writes, reads)
	if writes > reads+passes+others {
		t.Errorf("%d writes for %d reads and %d passes", writes, reads, passes)
	}
}

// Records of no bytes cost a frontend what their 8 bytes of the window allow: half of it while they wait, with room to
// grow; and 24 bytes each while the application holds them, which it gives back with the next batch.
func TestEmptyRecordsCostASmallMultiple(t *testing.T) {
	const streams, each = 64, DefaultWindow / wire.HeaderSize
	const window = streams * DefaultWindow
	onSockets(t, func(t *testing.T, plane string) {
		w := newRawWorkerOver(t, plane, Config{GapMax: -1}, nil)
		l := w.lane(t)
		full := bytes.Repeat([]byte{0}, each*wire.HeaderSize)
		fill := func(slot wire.Slot) []byte {
			for i := range each {
				wire.PutHeader(full[i*wire.HeaderSize:], wire.Data, 0, slot)
			}
			return full
		}
		var ins []*InStream
		var slots []wire.Slot
		for range streams {
			in, terms := w.mint(t, MintOptions{})
			ins, slots = append(ins, in), append(slots, terms.Slot)
			l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
		}
		if !l.alive(t) {
			t.Fatal("the lane died")
		}
		before := heap()
		check := func(what string, most int64) {
			t.Helper()
			st, grown := w.recv.Stats(), heap()-before
			t.Logf("%s: %d KiB with windows of %d KiB; BufferedBytes %d KiB", what, grown>>10, window>>10,
				st.BufferedBytes>>10)
			if grown > most {
				t.Errorf("%s: empty records hold %d bytes, more than %d times the windows", what, grown, most/window)
			}
			if st.BufferedBytes > window {
				t.Errorf("%s: BufferedBytes is %d with windows of %d", what, st.BufferedBytes, window)
			}
		}
		take := func(want int) {
			t.Helper()
			for _, in := range ins {
				for got := 0; got < want; {
					batch, err := in.NextBatch(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					got += len(batch)
				}
			}
		}
		for _, s := range slots {
			l.send(t, fill(s))
		}
		if !l.alive(t) {
			t.Fatal("the lane died")
		}
		check("waiting", 2*window)
		take(each)
		check("taken", 6*window)
		for _, s := range slots {
			l.send(t, data(wire.Data, s, []byte("a token")))
		}
		take(1)
		check("given back", 3*window)
		for _, in := range ins {
			if in.End() != nil {
				t.Fatalf("a stream ended: %v", in.End())
			}
		}
	})
}

// What a consumer has given up costs its slot and nothing of what had come for it, though the worker never answers
// KILL: the window is given out again.
func TestGivenUpStreamsHoldNoRecords(t *testing.T) {
	const streams, each = 256, 4 << 10
	onSockets(t, func(t *testing.T, plane string) {
		w := newRawWorkerOver(t, plane, Config{GapMax: -1}, nil)
		l := w.lane(t)
		before := heap()
		for range streams {
			in, terms := w.mint(t, MintOptions{})
			l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
			for range 7 {
				l.send(t, data(wire.Data, terms.Slot, make([]byte, 8<<10)))
			}
			waitFor(t, "the records", func() bool { return in.Inspect().Records == 7 })
			_ = in.Close()
		}
		waitFor(t, "the KILLs", func() bool { return l.count(wire.Kill) == streams })
		st, grown := w.recv.Stats(), heap()-before
		t.Logf("%d bytes a stream", grown/streams)
		if st.ClosingSlots != streams || grown > streams*each {
			t.Errorf("%d slots that wait for END hold %d bytes, at most %d each are allowed", st.ClosingSlots, grown,
				each)
		}
	})
}

// A worker that takes connections and answers HELLO, and then closes or sends what is no record, is dialled ever more
// rarely: six connections take at least five pauses, each of at least half of 50, 100, 200, 400, 800 ms.
func TestWorkerThatEndsEachConnectionIsDialledRarely(t *testing.T) {
	for name, rest := range map[string][]byte{"closes": nil, "sends garbage": []byte("garbage, and more of it")} {
		t.Run(name, func(t *testing.T) {
			onSockets(t, func(t *testing.T, plane string) {
				t.Parallel()
				begun, hellos := time.Now(), make(chan struct{}, 1000)
				bareWorker(t, plane, Config{}, func(conn transport.Conn, own *wire.HelloBody) {
					own.OwnSecret[1] = byte(own.Link)
					_, _ = conn.Write(append(wire.AppendHello(nil, own), rest...))
					hellos <- struct{}{}
					time.Sleep(time.Millisecond) // so that HELLO is read
				})
				for range 6 {
					<-hellos
				}
				if d := time.Since(begun); d < 31*25*time.Millisecond {
					t.Errorf("six connections within %v", d)
				}
			})
		})
	}
}
