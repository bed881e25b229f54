package mux

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

func TestPingCadence(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		open bool
		want int // in a minute
	}{
		{"idle", Config{}, false, 12},
		{"active", Config{}, true, 60},
		{"active as idle", Config{ActivePing: -1}, true, 60}, // the worker's HELLO asks for the shorter time
		{"idle, set", Config{KeepAlive: 2 * time.Second}, false, 30},
		{"active, set", Config{ActivePing: 500 * time.Millisecond}, true, 120},
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
			// the ticker's steps make it a little slower
			if n := l.count(wire.Ping); n < c.want*9/10-1 || n > c.want+1 {
				t.Errorf("%d PINGs in a minute, expected about %d", n, c.want)
			}
		})
	}
}

func TestSilence(t *testing.T) {
	for _, open := range []bool{false, true} {
		name, limit := "idle", DefaultIdle
		if open {
			name, limit = "with open streams", 3*DefaultActivePing
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
			if n := f.send.Stats().LaneDeaths[pipe.DownSilent]; n != 1 {
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
			if n := w.recv.Stats().LaneDeaths[pipe.DownSilent]; n != 1 {
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
		if st := w.recv.Stats(); st.LaneDeaths[pipe.DownSilent] != 0 {
			t.Errorf("deaths: %v", st.LaneDeaths)
		}
	})
}

// A process that was stopped does not take its own silence for its peers': all deadlines move by the lateness of the
// tick.
func TestLateTickMovesDeadlines(t *testing.T) {
	const stop = 8 * time.Second
	const hold = DefaultResume + DefaultIdle + 5*time.Second
	inFakeTime(t, "worker", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		f.lanes = 2
		lost := f.laneOf(t, 0, 0)
		l := f.laneOf(t, 1, 0)
		stranded := f.attach(t, f.terms(lost, 2))
		begun := time.Now()
		_ = lost.conn.Close()
		f.attach(t, f.terms(l, 1))
		time.Sleep(2900 * time.Millisecond)
		f.send.tick(f.send.now(), f.send.now()-int64(stop), stop)
		<-l.done
		took(t, "dead", begun, 5900*time.Millisecond, 5900*time.Millisecond+2*tickEvery)
		l = f.laneOf(t, 1, 0)
		l.talk(wire.Ping)
		<-stranded.Done()
		took(t, "lost", begun, hold+stop, hold+stop+time.Second+2*tickEvery)
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
		{"no answer", Config{}, (*memory.Network).Silence, DefaultResume, DefaultResume + 2*tickEvery},
		{"no answer, 2 s", Config{ResumeTimeout: 2 * time.Second}, (*memory.Network).Silence, 2 * time.Second,
			2*time.Second + 2*tickEvery},
		{"off", Config{ResumeTimeout: -1}, (*memory.Network).Silence, 0, 2 * tickEvery},
		{"some error", Config{}, func(n *memory.Network, a string) { n.Refuse(a, errors.New("no route")) },
			DefaultResume, DefaultResume + 2*tickEvery},
		{"refused on every port", Config{}, func(n *memory.Network, a string) { n.Refuse(a, syscall.ECONNREFUSED) },
			0, 100 * time.Millisecond},
		{"nobody listens on any port", Config{}, func(n *memory.Network, a string) { n.Refuse(a, nil) },
			0, 100 * time.Millisecond},
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

func TestTimesOfStreams(t *testing.T) {
	const slack = 300 * time.Millisecond
	for _, c := range []struct {
		name    string
		o       MintOptions
		records int // one each 400 ms, from 400 ms on
		want    time.Duration
	}{
		{"first record", MintOptions{FirstRecord: 2 * time.Second}, 0, 2 * time.Second},
		{"inactivity", MintOptions{Inactivity: time.Second, FirstRecord: time.Second}, 3,
			3*400*time.Millisecond + time.Second},
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
					b := wire.AppendPing(nil, wire.Pong, 0, 0)
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
			r, ok := l.await(t, "KILL", ofNumber(wire.Kill, terms.Number))
			if _, why, err := wire.ParseKill(r.Slot, r.body); !ok || err != nil || why != EndDeadline {
				t.Errorf("KILL says %s, %v", why, err)
			}
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

// A time that is far away never overflows into one that is over: not at the frontend, not in the terms, not at the
// worker.
func TestTimesThatAreFarAway(t *testing.T) {
	const far = time.Duration(math.MaxInt64)
	year2400 := time.Until(time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC)) // a Duration ends before that
	for name, d := range map[string]time.Duration{
		"the longest": far, "a microsecond less": far - time.Microsecond, "the year 2400": year2400,
		"250 years": 250 * 365 * 24 * time.Hour,
		"100 years": forever, "just below": forever - 1, "below 0, which is none": -time.Second,
	} {
		inFakeTime(t, name, func(t *testing.T) {
			p := newPair(t, pairConfig{})
			in, err := p.recv.Mint(t.Context(), p.id, MintOptions{TimeLeft: d, FirstRecord: d, Inactivity: d})
			if err != nil {
				t.Fatal(err)
			}
			out, err := p.send.Attach(in.Terms())
			if err != nil {
				t.Fatal(err)
			}
			if at, ok := out.Deadline(); ok && time.Until(at) < 90*365*24*time.Hour {
				t.Errorf("the worker's deadline is %v", at)
			}
			time.Sleep(3 * time.Second) // before the first record
			carry(t, in, out, 0)
			time.Sleep(3 * time.Second)
			p.recv.tick(p.recv.now(), p.recv.now()-1, 5*time.Second) // moves deadlines
			time.Sleep(3 * time.Second)
			carry(t, in, out, 1)
			finish(t, in, out)
			p.settled(t)
		})
	}
	for name, encoded := range map[string]uint64{
		"2^64-1 us": math.MaxUint64, "2^63 us": 1 << 63, "2^63/1000 us": math.MaxInt64/1000 + 1,
	} {
		inFakeTime(t, name, func(t *testing.T) { // by another implementation
			f := newRawFront(t, Config{}, memory.Config{})
			l := f.lane(t)
			l.talk(wire.Ping)
			terms := f.terms(l, 1)
			b := f.mint(&terms)
			binary.BigEndian.PutUint64(b[64:], encoded)
			b = sign(f, b)
			out, err := f.send.Attach(b)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if err := out.Err(); err != nil {
				t.Error(err)
			}
			_ = out.Complete(nil)
		})
	}
}

// sign sets the key of terms that were changed by hand.
func sign(f *rawFront, b []byte) []byte {
	mac := hmac.New(sha256.New, slices.Concat(f.secret[:], f.worker[:]))
	mac.Write(b[:72])
	return append(b[:72], mac.Sum(nil)[:8]...)
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
				f.worker = l.peer.OwnSecret
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
				total := writesOf(f.send)
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
		for n := range uint64(2) { // the first one on a connection that has written nothing
			begun := time.Now()
			if err := out.TryPut([]byte("x")); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "DATA", func() bool { return l.count(wire.Data) == int(n)+1 })
			took(t, "written", begun, 0, time.Second+2*tickEvery)
			if got := f.send.Stats().ForgottenFlushes; got != n+1 {
				t.Errorf("%d are counted, expected %d", got, n+1)
			}
		}
	})
}
