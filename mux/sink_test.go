package mux

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A sink is told of the end once, whatever comes after it: records on their way, the worker's END, the loss of the
// link.
func TestSinkIsToldOfItsEndOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(w *rawWorker, l *rawLane, in *InStream, terms wire.Terms)
		want EndType
	}{
		{"killed, then END", func(_ *rawWorker, l *rawLane, in *InStream, terms wire.Terms) {
			in.Kill(End{Type: EndKilled})
			l.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
		}, EndKilled},
		{"killed, then the link is lost", func(w *rawWorker, l *rawLane, in *InStream, terms wire.Terms) {
			in.Kill(End{Type: EndKilled})
			l.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
			w.recv.RemovePeer(workerID)
		}, EndKilled},
		{"too late, then END", func(_ *rawWorker, _ *rawLane, in *InStream, _ wire.Terms) {
			waitFor(t, "the deadline", func() bool { return in.End() != nil })
		}, EndDeadline},
		{"END of the worker", func(*rawWorker, *rawLane, *InStream, wire.Terms) {}, EndFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, nil)
			l := w.lane(t)
			o := MintOptions{}
			if c.want == EndDeadline {
				o.TimeLeft = time.Millisecond
			}
			in, terms := w.mint(t, o)
			defer in.Close()
			ends := make(chan End, 100)
			in.onRecords(func(_ [][]byte, end *End) bool {
				if end != nil {
					ends <- *end
				}
				return true
			})
			l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
			c.end(w, l, in, terms)
			for range 3 { // late records, each in a read of its own
				if _, err := l.conn.Write(data(wire.Data, terms.Slot, []byte("late"))); err != nil || !l.alive(t) {
					break
				}
			}
			if _, err := l.conn.Write(end(terms.Slot, wire.EndBody{Number: terms.Number,
				Type: EndFailed})); err == nil {
				l.alive(t)
			}
			select {
			case e := <-ends:
				if e.Type != c.want {
					t.Errorf("ended as %s, expected %s", e.Type, c.want)
				}
			case <-time.After(guard):
				t.Fatal("the sink was never told of the end")
			}
			if n := len(ends); n != 0 {
				t.Errorf("the sink was told %d times more", n)
			}
		})
	}
}

// A consumer that asks while the sink is saying "not now" gets the records: it must not be told that the sink has them.
func TestNotNowMeetsNextBatch(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	calls := make(chan struct{})
	got := make(chan string, 1)
	returned := make(chan struct{})
	in.onRecords(func([][]byte, *End) bool {
		close(calls) // a second call would panic: the stream is pulled
		for {        // until the consumer waits for this very call, or has its answer
			in.mu.Lock()
			waits := in.waiting
			in.mu.Unlock()
			select {
			case <-returned:
				return false
			case <-time.After(time.Millisecond):
			}
			if waits {
				return false
			}
		}
	})
	go func() {
		defer close(returned)
		<-calls
		batch, err := in.NextBatch(t.Context())
		if err != nil || len(batch) != 1 {
			got <- ""
			return
		}
		got <- string(batch[0])
	}()
	if err := out.TrySend([]byte("record")); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-got:
		if s != "record" {
			t.Fatal("NextBatch gave nothing, and nobody else ever will")
		}
	case <-time.After(guard):
		t.Fatal("NextBatch hangs")
	}
	in.mu.Lock()
	pulled := in.pulled
	in.mu.Unlock()
	if !pulled {
		t.Error("after \"not now\" the stream must be pulled until NextBatch finds it empty")
	}
	if batch, err := in.NextBatch(t.Context()); batch != nil || err != nil {
		t.Fatalf("expected nothing, got %q, %v", batch, err)
	}
	_ = in.Close()
	p.settled(t)
}

// Next on a stream with a sink follows NextBatch: nothing, no error, and never a record that the sink took.
func TestNextWithASink(t *testing.T) {
	p := newPair(t, pairConfig{})
	in, out := p.open(t)
	refuse, took := true, make(chan string, 10)
	in.onRecords(func(recs [][]byte, _ *End) bool {
		if refuse {
			refuse = false
			took <- "not now"
			return false
		}
		for _, r := range recs {
			took <- string(r)
		}
		return true
	})
	send := func(s string) {
		if err := out.TrySend([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	send("pulled")
	<-took
	if rec, err := in.Next(t.Context()); err != nil || string(rec) != "pulled" {
		t.Fatalf("%q, %v", rec, err)
	}
	if rec, err := in.Next(t.Context()); err != nil || rec != nil {
		t.Fatalf("%q, %v", rec, err)
	}
	send("sink 1")
	if s := <-took; s != "sink 1" {
		t.Fatal(s)
	}
	if rec, err := in.Next(t.Context()); err != nil || rec != nil {
		t.Fatalf("%q, %v: the sink had it", rec, err)
	}
	_ = out.Complete(nil)
	waitFor(t, "the end", func() bool { return in.End() != nil })
	_ = in.Close()
	p.settled(t)
}

// What the application holds is not written over when a large record has made the buffers change places.
func TestRecordsHeldAreNotOverwritten(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{Window: 16 << 20, MaxBuffered: 32 << 30}})
	in, out := p.open(t)
	var held, rec []byte
	for i, size := range []int{30, 2 << 20, 30, 40, 3 << 20, 50, 60, 20, 2 << 20, 20, 20} {
		next := makeRecord(nil, 1, i, size) // arrives while the application looks at the one before
		if err := out.Send(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the next record", func() bool {
			in.mu.Lock()
			defer in.mu.Unlock()
			return in.readyN == 1
		})
		if !bytes.Equal(held, rec) {
			t.Fatalf("the record before %d was written over while it was held", i)
		}
		var err error
		if held, err = in.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		rec = next
	}
	_ = out.Complete(nil)
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatal(err)
	}
	_ = in.Close()
	p.settled(t)
}

// A sink may stop, kill and close its own stream.
func TestSinkThatEndsItsStream(t *testing.T) {
	for name, act := range map[string]func(*InStream){
		"stop":  (*InStream).Stop,
		"kill":  func(s *InStream) { s.Kill(End{Type: EndKilled}) },
		"close": func(s *InStream) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, pairConfig{mem: memory.Config{TryWrite: true}})
			in, out := p.open(t)
			ends := make(chan EndType, 10)
			in.onRecords(func(recs [][]byte, end *End) bool {
				if end != nil {
					ends <- end.Type
				} else {
					act(in)
				}
				return true
			})
			if err := out.TrySend([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if name == "stop" {
				waitFor(t, "STOP", out.Stopping)
				_ = out.Complete(nil)
			} else {
				<-out.Done()
			}
			p.settled(t)
			_ = in.Close()
			switch want := map[string]int{"stop": 1, "kill": 1, "close": 0}[name]; {
			case len(ends) != want:
				t.Errorf("the sink was told %d times of its end, expected %d", len(ends), want)
			}
		})
	}
}

// A record that no receiver would assemble is refused where it is made: it would end the lane and the streams of
// others.
func TestRecordLongerThanIsAssembled(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{Window: 64 << 10}})
	in, out := p.open(t)
	long := make([]byte, DefaultMaxRecord+1)
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	go func() {
		for { // so that Put would not wait
			if _, err := in.NextBatch(ctx); err != nil {
				return
			}
		}
	}()
	if err := out.Put(ctx, long); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("Put: %v", err)
	}
	if err := out.TryPut(long); !errors.Is(err, ErrRecordTooLarge) {
		t.Errorf("TryPut: %v", err)
	}
	if err := out.Put(ctx, long[:DefaultMaxRecord]); err != nil {
		t.Errorf("the longest record: %v", err)
	}
	_ = out.Complete(nil)
	p.settled(t)
	_ = in.Close()
	if n := p.recv.Stats().LaneDeaths[pipe.DownProtocol]; n != 0 {
		t.Errorf("%d lanes died", n)
	}
}
