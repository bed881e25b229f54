package transporttest

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

// pairOfLanes is both ends of a lane.
type pairOfLanes struct{ d, a transport.Conn }

// withLanes runs a test over 1, 2 and 4 lanes between the same two nodes.
func withLanes(run func(t *testing.T, f Factory, lanes []pairOfLanes)) func(*testing.T, Factory) {
	return func(t *testing.T, f Factory) {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%dLanes", n), func(t *testing.T) {
				r := newRig(t, f, 4)
				lanes := make([]pairOfLanes, n)
				for i := range lanes {
					lanes[i].d, lanes[i].a = r.lane(t, i)
				}
				run(t, f, lanes)
			})
		}
	}
}

// flow sends total bytes each way over a lane and says what is wrong with what came.
func (p pairOfLanes) flow(seed byte, total, most int) error {
	ways := [][2]transport.Conn{{p.d, p.a}, {p.a, p.d}}
	errs := make([]error, len(ways))
	var wg sync.WaitGroup
	for i, w := range ways {
		s := seed + byte(i)*64
		sent := make(chan result, 1)
		wg.Go(func() { sent <- send(w[0], s, total, most) })
		wg.Go(func() {
			got, out := drain(w[1], total), <-sent
			if got.err != nil || out.err != nil || got.sum != out.sum {
				errs[i] = fmt.Errorf("read %d bytes (%08x, %v), written %d (%08x, %v)", got.n, got.sum, got.err, out.n,
					out.sum, out.err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// testLanesAtOnce fills all lanes in both directions.
func testLanesAtOnce(t *testing.T, f Factory, lanes []pairOfLanes) {
	ports := make(map[string]bool)
	done := make(chan error, len(lanes))
	for i, p := range lanes {
		ports[p.d.Info().Local.String()] = true
		go func() { done <- p.flow(byte(i), 1<<20, 100_000) }()
	}
	for range lanes {
		if err := must(t, done, "a lane"); err != nil {
			t.Error(err)
		}
	}
	if len(ports) != len(lanes) {
		t.Errorf("%d lanes have %d sockets: %v", len(lanes), len(ports), ports)
	}
}

// testBlockedLane has the reader of one lane stop. The others go on, and so does it when its reader does.
func testBlockedLane(t *testing.T, f Factory, lanes []pairOfLanes) {
	for _, swap := range []bool{false, true} {
		from, to := lanes[0].a, lanes[0].d
		if swap {
			from, to = to, from
		}
		var stop atomic.Bool
		stuck := blocked(t, from, &stop)
		for i, p := range lanes[1:] {
			if err := p.flow(byte(i), 1<<20, 50_000); err != nil {
				t.Errorf("lane %d beside a blocked one: %v", i+1, err)
			}
		}
		stop.Store(true)
		got := start(func() result { return drain(to, -1) })
		sent := must(t, stuck, "the blocked write")
		if err := from.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		r := must(t, got, "reading")
		if r.err != io.EOF {
			t.Errorf("read ended with %v, want io.EOF", r.err)
		}
		same(t, sent, r)
	}
}

// testFaultInOneLane aborts one lane in the middle of its bytes. Its ends get errors, never a clean end; the others
// lose nothing.
func testFaultInOneLane(t *testing.T, f Factory, lanes []pairOfLanes) {
	others := make(chan error, len(lanes))
	for i, p := range lanes[1:] {
		go func() { others <- p.flow(byte(i), 2<<20, 30_000) }()
	}
	broken := lanes[0]
	written := start(func() result { return send(broken.a, 1, 1<<30, 50_000) })
	first := must(t, start(func() result { return drain(broken.d, 300_000) }), "the first bytes")
	if first.err != nil {
		t.Fatal(first.err)
	}
	rest := start(func() result { return drain(broken.a, -1) }) // nobody writes this way
	broken.d.Close()
	wantRemote(t, "the write", must(t, written, "the write").err)
	wantRemote(t, "the read", must(t, rest, "the read").err)
	for range lanes[1:] {
		if err := must(t, others, "another lane"); err != nil {
			t.Errorf("beside a broken lane: %v", err)
		}
	}
}

// stressShape is a load that is named by its numbers.
type stressShape struct{ lanes, messages, bytes int }

func (s stressShape) String() string {
	return fmt.Sprintf("%dLanes%dMessages%dB", s.lanes, s.messages, s.bytes)
}

// testStress echoes messages one after the other on each of many lanes at once. The smallest is the shape of a token,
// the largest that of a large record.
func testStress(t *testing.T, f Factory) {
	for _, s := range []stressShape{{1, 1, 100}, {1, 300, 64}, {4, 100, 64}, {16, 20, 1000}, {4, 20, 65_536},
		{2, 2, 4 << 20}} {
		t.Run(s.String(), func(t *testing.T) {
			r := newRig(t, f, min(s.lanes, 4))
			done := make(chan error, s.lanes)
			for i := range s.lanes {
				d, a := r.lane(t, i)
				go func() { _, _ = io.Copy(onlyWriter{a}, a) }() // ends with the lane
				go func() { done <- exchange(d, byte(i), s) }()
			}
			for range s.lanes {
				if err := must(t, done, "a lane"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// onlyWriter keeps io.Copy from methods that a lane may have.
type onlyWriter struct{ io.Writer }

// exchange sends messages and checks what comes back.
func exchange(c transport.Conn, seed byte, s stressShape) error {
	src := random(seed)
	out, in := make([]byte, s.bytes), make([]byte, s.bytes)
	for i := range s.messages {
		src.Read(out)
		wrote := make(chan error, 1)
		go func() { _, err := c.Write(out); wrote <- err }() // a message may be more than both directions hold
		if _, err := io.ReadFull(c, in); err != nil {
			return fmt.Errorf("message %d: read: %w", i, err)
		}
		if err := <-wrote; err != nil {
			return fmt.Errorf("message %d: write: %w", i, err)
		}
		if crc(in) != crc(out) {
			return fmt.Errorf("message %d came back changed", i)
		}
	}
	return nil
}
