package mux

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport/memory"
)

func TestOneStream(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	for i := range 256 {
		if err := out.Send(t.Context(), makeRecord(nil, 1, i, 64)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Complete([]byte("trailer")); err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		rec, err := in.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := checkRecord(rec, 1, i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatalf("expected io.EOF after the last record, got %v", err)
	}
	if end := in.End(); string(end.Trailer) != "trailer" || end.Records != 256 {
		t.Fatalf("end is %+v", end)
	}
	_ = in.Close()
	p.settled(t)
}

func TestManyStreamsAnySize(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprintf("lanes=%d/inline=%t", lanes, try), func(t *testing.T) {
				p := newPair(t, pairConfig{recv: Config{Lanes: lanes}, mem: memory.Config{TryWrite: try}})
				exchange(t, p, 200, 64, 3000)
				p.settled(t)
			})
		}
	}
}

// exchange runs n streams of count records up to size bytes, all at once, and checks every record.
func exchange(t *testing.T, p *pair, n, count, size int) {
	t.Helper()
	var wg sync.WaitGroup
	for s := range n {
		in, out := p.open(t)
		id := uint64(s + 1)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(id, 1))
			for i := range count {
				if err := out.Send(t.Context(), makeRecord(nil, id, i, 16+r.IntN(size))); err != nil {
					t.Errorf("stream %d: send %d: %v", id, i, err)
					return
				}
			}
			if err := out.Complete(nil); err != nil {
				t.Errorf("stream %d: complete: %v", id, err)
			}
		})
		wg.Go(func() {
			defer in.Close()
			for i := 0; ; i++ {
				rec, err := in.Next(t.Context())
				if err != nil {
					if err != io.EOF || i != count {
						t.Errorf("stream %d: after %d records: %v", id, i, err)
					}
					return
				}
				if err := checkRecord(rec, id, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestLargeRecordsGoAsFragments(t *testing.T) {
	for _, window := range []int{4 << 10, 64 << 10, 16 << 20} {
		t.Run(fmt.Sprintf("window=%d", window), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{Window: window, MaxBuffered: 32 << 30}})
			in, out := p.open(t)
			sizes := []int{20, window/2 - 8, window / 2, window, 3 * window, 100_000, 1}
			go func() {
				for i, n := range sizes {
					if n+20 > 16<<20 {
						n = 16<<20 - 30
					}
					if err := out.Send(t.Context(), makeRecord(nil, 7, i, n)); err != nil {
						t.Error(err)
					}
				}
				_ = out.Complete(nil)
			}()
			for i := range sizes {
				rec, err := in.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := checkRecord(rec, 7, i); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := in.Next(t.Context()); err != io.EOF {
				t.Fatal(err)
			}
			_ = in.Close()
			p.settled(t)
		})
	}
}

func TestKillBeforeAndAfterTheFirstRecord(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	in.Kill(End{Type: EndKilled})
	<-out.Done()
	var end *EndError
	if err := out.TrySend([]byte("x")); !errors.As(err, &end) || end.End.Type != EndKilled {
		t.Fatalf("expected killed, got %v", err)
	}
	in2, out2 := p.open(t)
	if err := out2.TrySend([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := in2.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = in2.Close()
	<-out2.Done()
	// A KILL that comes before the request refuses it.
	in3, err := p.recv.Mint(t.Context(), p.id, MintOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_ = in3.Close()
	waitFor(t, "the slot is free", func() bool { return p.recv.Stats().OpenStreams == 0 })
	if _, err := p.send.Attach(in3.Terms()); !errors.Is(err, ErrStaleTerms) {
		t.Fatalf("late request: expected ErrStaleTerms, got %v", err)
	}
	p.settled(t)
}

func TestWindowStopsOnlyItsOwnStream(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{Window: 8 << 10}})
	in, out := p.open(t)
	room := make(chan struct{}, 1)
	out.OnWritable(func() { room <- struct{}{} })
	n := 0
	for {
		err := out.TrySend(makeRecord(nil, 1, n, 64))
		if errors.Is(err, ErrWindowFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	exchange(t, p, 20, 64, 64)
	got := 0
	for got < n {
		batch, err := in.NextBatch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range batch {
			if err := checkRecord(rec, 1, got); err != nil {
				t.Fatal(err)
			}
			got++
		}
	}
	<-room
	if err := out.TrySend(makeRecord(nil, 1, n, 64)); err != nil {
		t.Fatal(err)
	}
	_ = out.Complete(nil)
	if _, err := in.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	_ = in.Close()
	p.settled(t)
}

func TestLaneDeathsLoseNothing(t *testing.T) {
	for _, try := range []bool{false, true} {
		t.Run(fmt.Sprintf("inline=%t", try), func(t *testing.T) {
			p := newPair(t, pairConfig{recv: Config{Lanes: 4}, mem: memory.Config{TryWrite: try}})
			stop := make(chan struct{})
			var killer sync.WaitGroup
			killer.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					time.Sleep(3 * time.Millisecond) // the pace of the deaths, not a wait for anything
					conns := p.net.Conns()
					if len(conns) > 0 {
						conns[i%len(conns)].Cut(errors.New("cut by the test"))
					}
					waitFor(t, "a lane", func() bool { return p.state().Lanes >= 2 })
				}
			})
			for range 5 {
				exchange(t, p, 100, 256, 300)
			}
			close(stop)
			killer.Wait()
			if n := p.recv.Stats().LaneTakeovers; len(n) == 0 {
				t.Error("no lane was taken over")
			}
			p.settled(t)
		})
	}
}
