package mux

import (
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// paced is 999 streams that an engine serves once a pass, beside one stream whose consumer has stopped.
type paced struct {
	p       *pair
	out     []*OutStream
	done    sync.WaitGroup
	last    []time.Time // when the stream's last record was taken
	stopped *InStream
	full    *OutStream
	put     int // records on the stopped stream
	room    chan struct{}
}

const pacedRecord = 64

// newPaced opens the streams; half of them are pulled, half have a sink.
func newPaced(t *testing.T, p *pair, streams, passes int) *paced {
	b := &paced{p: p, last: make([]time.Time, streams), room: make(chan struct{}, 1)}
	b.stopped, b.full = p.open(t)
	b.full.OnWritable(func() { signal(b.room) })
	for i := range streams {
		in, out := p.open(t)
		b.out = append(b.out, out)
		b.done.Add(1)
		if i%2 == 0 {
			go b.pull(t, in, i, passes)
			continue
		}
		got := 0
		in.onRecords(func(recs [][]byte, end *End) bool {
			for _, rec := range recs {
				if err := checkRecord(rec, uint64(i), got); err != nil {
					t.Error(err)
				}
				got++
			}
			if end != nil {
				b.ended(t, i, got, passes, endError(end))
			}
			return true
		})
	}
	return b
}

func (b *paced) pull(t *testing.T, in *InStream, i, passes int) {
	defer in.Close()
	for n := 0; ; n++ {
		rec, err := in.Next(t.Context())
		if err != nil {
			b.ended(t, i, n, passes, err)
			return
		}
		if err := checkRecord(rec, uint64(i), n); err != nil {
			t.Error(err)
		}
	}
}

func (b *paced) ended(t *testing.T, i, got, want int, err error) {
	if err != io.EOF || got != want {
		t.Errorf("stream %d: %d of %d records, %v", i, got, want, err)
	}
	b.last[i] = time.Now()
	b.done.Done()
}

// fill puts records on the stopped stream until its window is full.
func (b *paced) fill(t *testing.T) {
	for {
		err := b.full.TryPut(makeRecord(nil, 1<<32, b.put, pacedRecord))
		if errors.Is(err, ErrWindowFull) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		b.put++
	}
}

// pass is one engine pass: a record on each paced stream, one Flush. No stream may find its window full.
func (b *paced) pass(t *testing.T, n int, last bool) {
	b.fill(t)
	for i, out := range b.out {
		if err := out.TryPut(makeRecord(nil, uint64(i), n, pacedRecord)); err != nil {
			t.Fatalf("pass %d, stream %d: %v", n, i, err)
		}
		if last {
			if err := out.Complete(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.p.send.Flush()
}

// finish reads the stopped stream to its end, while the worker goes on with it.
func (b *paced) finish(t *testing.T) {
	const more = 1000
	total := b.put + more
	var work sync.WaitGroup
	work.Go(func() {
		for ; b.put < total; b.put++ {
			if err := b.full.Send(t.Context(), makeRecord(nil, 1<<32, b.put, pacedRecord)); err != nil {
				t.Error(err)
				return
			}
		}
		if err := b.full.Complete(nil); err != nil {
			t.Error(err)
		}
	})
	for i := 0; ; i++ {
		rec, err := b.stopped.Next(t.Context())
		if err == io.EOF && i == total {
			break
		}
		if err != nil {
			t.Errorf("the stopped stream, after %d of %d records: %v", i, total, err)
			break
		}
		if err := checkRecord(rec, 1<<32, i); err != nil {
			t.Error(err)
		}
	}
	work.Wait()
	_ = b.stopped.Close()
}

// check looks at what the stopped stream costs.
func (b *paced) check(t *testing.T) {
	t.Helper()
	front, work := b.p.recv.Stats(), b.p.send.Stats()
	if work.WindowStalls != 1 {
		t.Errorf("%d window stalls, expected the stopped stream's one", work.WindowStalls)
	}
	if b.stopped.End() != nil || b.full.Err() != nil {
		t.Errorf("the stopped stream has ended: %v, %v", b.stopped.End(), b.full.Err())
	}
	window := int64(b.full.window)
	if front.BufferedBytes > window {
		t.Errorf("%d bytes wait at the frontend, the window has %d", front.BufferedBytes, window)
	}
}

// TestStoppedConsumer runs in fake time, so that rates and delays are exact.
func TestStoppedConsumer(t *testing.T) {
	streams, passes := 999, 256
	if underRace {
		streams, passes = 200, 160
	}
	synctest.Test(t, func(t *testing.T) {
		const every = 20 * time.Millisecond
		p := newPair(t, pairConfig{recv: Config{Window: 8 << 10}, mem: memory.Config{TryWrite: true}})
		b := newPaced(t, p, streams, passes)
		start := time.Now()
		for n := range passes {
			b.pass(t, n, n == passes-1)
			time.Sleep(every)
		}
		b.done.Wait()
		for i, at := range b.last {
			if took := at.Sub(start); took > time.Duration(passes-1)*every+10*time.Millisecond {
				t.Errorf("stream %d ended after %v, it was offered within %v", i, took, time.Duration(passes-1)*every)
			}
		}
		time.Sleep(60 * time.Second)
		b.check(t)
		b.finish(t)
		waitFor(t, "no stream is left", p.isSettled)
	})
}

// TestStoppedConsumerOverSockets is the same in real time. A window holds more than a paced stream gets, so a full
// one is the stopped stream's doing, however slow the machine is.
func TestStoppedConsumerOverSockets(t *testing.T) {
	streams, passes := 999, 64
	if underRace {
		streams, passes = 100, 32
	}
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneTLS, transport.PlaneQUIC} {
		t.Run("plane="+plane, func(t *testing.T) {
			p, _, _ := newPlanePair(t, plane, pairConfig{recv: Config{Window: 16 << 10}})
			b := newPaced(t, p, streams, passes)
			for n := range passes {
				b.pass(t, n, n == passes-1)
				time.Sleep(5 * time.Millisecond) // the engine's pace
			}
			b.done.Wait()
			waitFor(t, "the paced streams are acknowledged", func() bool { return p.send.Stats().OpenStreams == 1 })
			b.check(t)
			b.finish(t)
			p.settled(t)
		})
	}
}
