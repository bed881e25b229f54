package mux

import (
	"encoding/binary"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// inFakeTime runs a test whose clock moves only when everybody waits.
func inFakeTime(t *testing.T, name string, fn func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

// took checks how long something took since begun.
func took(t *testing.T, what string, begun time.Time, low, high time.Duration) {
	t.Helper()
	if d := time.Since(begun); d < low-5*time.Millisecond || d > high { // begun may have been read a little late
		t.Errorf("%s after %v, expected %v to %v", what, d, low, high)
	}
}

// talk keeps a raw lane's other end from hearing silence until the lane ends. The test must not write meanwhile.
func (l *rawLane) talk(kind wire.Kind) {
	go func() {
		for {
			select {
			case <-l.done:
				return
			case <-time.After(200 * time.Millisecond):
				if _, err := l.conn.Write(wire.AppendPing(nil, kind, 0)); err != nil {
					return
				}
			}
		}
	}()
}

func TestPingCadence(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		open bool
		want int // in a minute
	}{
		{"idle", Config{}, false, 12},
		{"active", Config{}, true, 60},
		{"active, set", Config{ActivePing: 2 * time.Second}, true, 30},
		{"active as idle", Config{ActivePing: -1}, true, 12},
		{"idle, set", Config{KeepAlive: 10 * time.Second}, false, 6},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			w := newRawWorker(t, c.cfg, memory.Config{}, nil)
			l := w.lane(t)
			l.talk(wire.Pong)
			if c.open {
				in, _ := w.mint(t, MintOptions{})
				defer in.Close()
			}
			time.Sleep(time.Minute)
			if n := l.count(wire.Ping); n < c.want-2 || n > c.want+2 {
				t.Errorf("%d PINGs in a minute, expected about %d", n, c.want)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	for _, open := range []bool{false, true} {
		name, limit := "idle", 15*time.Second
		if open {
			name, limit = "with open streams", 3*time.Second
		}
		inFakeTime(t, "worker/"+name, func(t *testing.T) {
			f := newRawFront(t, Config{}, memory.Config{})
			l := f.lane(t)
			begun := time.Now()
			if open {
				time.Sleep(10 * time.Second) // of silence before the first stream do not count
				begun = time.Now()
				f.attach(t, f.terms(l, 1))
			}
			<-l.done
			took(t, "dead", begun, limit, limit+2*tickEvery)
			if n := f.send.Stats().LaneDeaths[deathSilent]; n != 1 {
				t.Errorf("%d silent deaths", n)
			}
		})
		inFakeTime(t, "frontend/"+name, func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, nil)
			l := w.lane(t)
			begun := time.Now()
			if open {
				in, _ := w.mint(t, MintOptions{})
				defer in.Close()
			}
			<-l.done
			took(t, "dead", begun, limit, limit+2*tickEvery)
			if n := w.recv.Stats().LaneDeaths[deathSilent]; n != 1 {
				t.Errorf("%d silent deaths", n)
			}
		})
	}
	inFakeTime(t, "a busy sink is no silence", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		in, terms := w.mint(t, MintOptions{})
		defer in.Close()
		in.onRecords(func([][]byte, *End) bool { time.Sleep(20 * time.Second); return true })
		l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key), data(wire.Data, terms.Slot, []byte("x")))
		time.Sleep(19 * time.Second)
		if st := w.recv.Stats(); st.LaneDeaths[deathSilent] != 0 {
			t.Errorf("deaths: %v", st.LaneDeaths)
		}
	})
}

// A process that was stopped does not take its own silence for its peers': all deadlines move by the lateness of the tick.
func TestLateTickMovesDeadlines(t *testing.T) {
	const stop = 8 * time.Second
	inFakeTime(t, "worker", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		lost, l := f.lane(t), f.lane(t)
		stranded := f.attach(t, f.terms(lost, 2))
		begun := time.Now()
		_ = lost.conn.Close()
		f.attach(t, f.terms(l, 1))
		time.Sleep(2900 * time.Millisecond)
		f.send.tick(f.send.now(), f.send.now()-int64(stop), stop)
		<-l.done
		took(t, "dead", begun, 5900*time.Millisecond, 5900*time.Millisecond+2*tickEvery)
		<-stranded.Done()
		took(t, "lost", begun, 15*time.Second+stop, 16*time.Second+stop+2*tickEvery)
	})
	inFakeTime(t, "frontend", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		in, _ := w.mint(t, MintOptions{FirstRecord: 4 * time.Second})
		defer in.Close()
		begun := time.Now()
		time.Sleep(2900 * time.Millisecond)
		w.net.Silence(l.conn.Info().Local.String())
		w.recv.tick(w.recv.now(), w.recv.now()-int64(stop), stop)
		<-l.done
		took(t, "dead", begun, 5900*time.Millisecond, 5900*time.Millisecond+2*tickEvery)
		if in.End() != nil {
			t.Errorf("ended: %+v", in.End())
		}
		waitFor(t, "the end", func() bool { return in.End() != nil })
		took(t, "no first record", begun, 4*time.Second+stop, 4*time.Second+stop+300*time.Millisecond)
		waitFor(t, "the link is lost", func() bool { return w.recv.Stats().Links == 0 })
		took(t, "lost", begun, 15900*time.Millisecond, 16100*time.Millisecond)
	})
}

func TestResumeTimeout(t *testing.T) {
	for _, c := range []struct {
		name      string
		cfg       Config
		deny      func(*memory.Network, string)
		low, high time.Duration
	}{
		{"no answer", Config{}, (*memory.Network).Silence, 10 * time.Second, 10*time.Second + 2*tickEvery},
		{"no answer, 2 s", Config{ResumeTimeout: 2 * time.Second}, (*memory.Network).Silence, 2 * time.Second, 2*time.Second + 2*tickEvery},
		{"off", Config{ResumeTimeout: -1}, (*memory.Network).Silence, 0, 2 * tickEvery},
		{"some error", Config{}, func(n *memory.Network, a string) { n.Refuse(a, errors.New("no route")) }, 10 * time.Second, 10*time.Second + 2*tickEvery},
		{"refused on every port", Config{}, func(n *memory.Network, a string) { n.Refuse(a, syscall.ECONNREFUSED) }, 0, 100 * time.Millisecond},
		{"nobody listens on any port", Config{}, func(n *memory.Network, a string) { n.Refuse(a, nil) }, 0, 100 * time.Millisecond},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			w := newRawWorker(t, c.cfg, memory.Config{}, nil)
			l := w.lane(t)
			in, _ := w.mint(t, MintOptions{})
			defer in.Close()
			c.deny(w.net, l.conn.Info().Local.String())
			begun := time.Now()
			w.net.Cut(nil)
			_, err := in.Next(t.Context())
			if end, wrong := endType(err); end != EndLost {
				t.Errorf("%v (%v)", err, wrong)
			}
			took(t, "lost", begun, c.low, c.high)
		})
	}
	inFakeTime(t, "a request without a record is told after half a second", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		in, _ := w.mint(t, MintOptions{})
		defer in.Close()
		w.net.Silence(l.conn.Info().Local.String())
		begun := time.Now()
		w.net.Cut(nil)
		if err := in.Wait(t.Context()); !errors.Is(err, ErrLinkDown) {
			t.Errorf("Wait: %v", err)
		}
		took(t, "told", begun, retryAfter, retryAfter+300*time.Millisecond)
	})
}

func TestHoldTime(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		gone, l := f.lane(t), f.lane(t)
		l.talk(wire.Pong)
		open, ended := f.attach(t, f.terms(gone, 1)), f.attach(t, f.terms(gone, 2))
		_ = ended.Complete(nil)
		begun := time.Now()
		_ = gone.conn.Close()
		<-open.Done()
		took(t, "lost", begun, 15*time.Second, 16*time.Second+2*tickEvery)
		if end, _ := endType(open.Err()); end != EndLost {
			t.Errorf("ended as %s", end)
		}
		waitFor(t, "the ended one is forgotten", func() bool { st := f.send.Stats(); return st.OpenStreams == 0 && st.CommittedBytes == 0 })
		took(t, "forgotten", begun, 15*time.Second, 16*time.Second+2*tickEvery)
	})
}

// What is remembered of a request that never comes is forgotten after a minute, on a live lane as on a dead one.
func TestEarlyEntriesExpire(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l, gone := f.lane(t), f.lane(t)
		k := f.send.links[linkKey{peer: frontID, id: 1}]
		early := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.early
		}
		begun := time.Now()
		gone.send(t, wire.AppendResume(nil, wire.MakeSlot(3, 1), resume(3, 1, 0, 0)), wire.AppendResume(nil, wire.MakeSlot(4, 1), resume(5, 1, 0, 0)))
		if !gone.alive(t) {
			t.Fatal("the lane died")
		}
		_ = gone.conn.Close()
		l.send(t, wire.AppendResume(nil, wire.MakeSlot(1, 1), resume(1, 1, 0, 0)), wire.AppendNumber(nil, wire.Stop, wire.MakeSlot(2, 1), 2))
		l.talk(wire.Ping)
		waitFor(t, "four entries", func() bool { return early() == 4 })
		// A request that comes for an entry whose lane has died waits for its RESUME no longer than any other.
		terms := wire.Terms{Frontend: frontID, Worker: workerID, Link: 1, Slot: wire.MakeSlot(4, 1), Number: 5, Serial: gone.peer.Serial, Window: 4 << 10}
		time.Sleep(30 * time.Second)
		out := f.attach(t, terms)
		<-out.Done()
		took(t, "lost", begun, 45*time.Second, 47*time.Second)
		waitFor(t, "no entry is left", func() bool { return early() == 0 })
		took(t, "forgotten", begun, earlyLife, earlyLife+1200*time.Millisecond)
	})
}

func TestTimesOfStreams(t *testing.T) {
	const slack = 300 * time.Millisecond
	for _, c := range []struct {
		name    string
		o       MintOptions
		records int // one each 400 ms, from 400 ms on
		want    time.Duration
	}{
		{"first record", MintOptions{FirstRecord: 2 * time.Second}, 0, 2 * time.Second},
		{"inactivity", MintOptions{Inactivity: time.Second, FirstRecord: time.Second}, 3, 3*400*time.Millisecond + time.Second},
		{"deadline", MintOptions{TimeLeft: 2 * time.Second, Inactivity: time.Second}, 100, 2 * time.Second},
	} {
		inFakeTime(t, c.name, func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, nil)
			l := w.lane(t)
			begun := time.Now()
			in, terms := w.mint(t, c.o)
			defer in.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				_, _ = l.conn.Write(wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key))
				for i := 0; in.End() == nil; i++ {
					time.Sleep(400 * time.Millisecond)
					b := wire.AppendPing(nil, wire.Pong, 0)
					if i < c.records {
						b = append(b, data(wire.Data, terms.Slot, []byte("x"))...)
					}
					if _, err := l.conn.Write(b); err != nil {
						return
					}
				}
			})
			for {
				if _, err := in.Next(t.Context()); err != nil {
					if end, wrong := endType(err); end != EndDeadline {
						t.Errorf("%v (%v)", err, wrong)
					}
					break
				}
			}
			took(t, "ended", begun, c.want, c.want+slack)
			l.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
		})
	}
	inFakeTime(t, "the worker's backstop", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		l.talk(wire.Pong)
		terms := f.terms(l, 1)
		terms.TimeLeft = 5 * time.Second
		begun := time.Now()
		out := f.attach(t, terms)
		<-out.Done()
		took(t, "ended", begun, 5*time.Second, 6*time.Second+2*tickEvery)
		if end, _ := endType(out.Err()); end != EndDeadline {
			t.Errorf("ended as %s", end)
		}
		l.await(t, "END", endOf(terms.Number))
	})
}

// CONSUMED(end) waits for company, but not for long.
func TestLazyConsumed(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		w := newRawWorker(t, Config{}, memory.Config{}, nil)
		l := w.lane(t)
		in, terms := w.mint(t, MintOptions{})
		defer in.Close()
		time.Sleep(time.Second / 2)
		begun := time.Now()
		l.send(t, wire.AppendOpen(nil, terms.Slot, terms.Number, terms.Key), end(terms.Slot, complete(terms.Number, 0, 0)))
		r, ok := l.await(t, "CONSUMED", ofKind(wire.Consumed))
		if !ok {
			t.Fatal("the lane died")
		}
		took(t, "CONSUMED", begun, lazyAfter, lazyAfter+2*tickEvery)
		want := uint64(wire.HeaderSize+wire.OpenSize) + uint64(wire.EndSize(&wire.EndBody{}))
		if n, _ := wire.ParseUint64(r.Header, r.body); n != want {
			t.Errorf("CONSUMED(%d), expected %d", n, want)
		}
	})
}

// The gap rule: at most one write a gap, nothing bulk waits longer than a gap, what is urgent waits not at all.
func TestGapRule(t *testing.T) {
	for _, try := range []bool{false, true} {
		for _, gap := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond} {
			inFakeTime(t, "", func(t *testing.T) {
				f := newRawFront(t, Config{GapMax: gap}, memory.Config{TryWrite: try})
				l := f.dial(t)
				if err := f.greet(t, l, f.hello()); err != nil {
					t.Fatal(err)
				}
				terms := f.terms(l, 1)
				begun := time.Now()
				var bulk, urgent time.Duration // the longest waits
				var wg sync.WaitGroup
				wg.Go(func() {
					for {
						r, err := l.read()
						if err != nil {
							return
						}
						if r.Kind == wire.Data {
							d := time.Since(begun) - time.Duration(binary.BigEndian.Uint64(r.body))
							if r.Slot == terms.Slot {
								bulk = max(bulk, d)
							} else {
								urgent = max(urgent, d)
							}
						}
					}
				})
				out := f.attach(t, terms)
				stamp := func() []byte { return binary.BigEndian.AppendUint64(nil, uint64(time.Since(begun))) }
				const passes = 5000 // of 100 us
				for i := range passes {
					if err := out.TrySend(stamp()); err != nil && !errors.Is(err, ErrWindowFull) {
						t.Fatal(err)
					}
					if i%500 == 499 {
						first := f.attach(t, f.terms(l, uint32(2+i/500)))
						if err := first.TrySend(stamp()); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(100 * time.Microsecond)
				}
				total := uint64(0)
				for _, n := range f.send.Stats().Writes {
					total += n
				}
				if most := uint64(passes*100*time.Microsecond/gap) + 5 + 10; total > most {
					t.Errorf("%d writes in %v, at most %d are allowed", total, time.Since(begun), most)
				}
				_ = l.conn.Close()
				wg.Wait()
				if bulk > gap {
					t.Errorf("a record waited %v, the gap is %v", bulk, gap)
				}
				if urgent != 0 {
					t.Errorf("a first record waited %v", urgent)
				}
			})
		}
	}
	inFakeTime(t, "rare records never wait", func(t *testing.T) {
		f := newRawFront(t, Config{GapMax: 5 * time.Millisecond}, memory.Config{})
		l := f.lane(t)
		out := f.attach(t, f.terms(l, 1))
		for i := range 100 {
			begun := time.Now()
			if err := out.TrySend([]byte("x")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := l.count(wire.Data); n != i+1 {
				t.Fatalf("record %d waits", i)
			}
			time.Sleep(6*time.Millisecond - time.Since(begun))
		}
	})
}

func TestForgottenFlush(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		out := f.attach(t, f.terms(l, 1))
		begun := time.Now()
		if err := out.TryPut([]byte("x")); err != nil {
			t.Fatal(err)
		}
		l.await(t, "DATA", ofKind(wire.Data))
		took(t, "written", begun, 0, time.Second+2*tickEvery)
		if n := f.send.Stats().ForgottenFlushes; n != 1 {
			t.Errorf("%d are counted", n)
		}
	})
}
