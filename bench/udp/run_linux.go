package udp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
)

// Measure runs every way, with and without GRO, Runs times, interleaved: every other repetition goes the other way
// round.
func Measure(ctx context.Context, cfg Config) (runs []Run, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	type arm struct {
		way Way
		gro bool
	}
	var arms []arm
	for _, w := range Ways() {
		if !cfg.Fits(w) {
			cfg.progress("%s is left out: %d datagrams of %d bytes do not fit one message of %d", w, w.Segments,
				cfg.Datagram, MaxMessage)
			continue
		}
		arms = append(arms, arm{w, false}, arm{w, true})
	}
	for rep := range cfg.Runs {
		for _, a := range benchtable.Order(arms, rep) {
			if ctx.Err() != nil {
				return runs, context.Cause(ctx)
			}
			r, err := one(cfg, a.way, a.gro)
			if err != nil {
				return runs, fmt.Errorf("%s, GRO %v: %w", a.way, a.gro, err)
			}
			r.Run = rep + 1
			runs = append(runs, r)
		}
		cfg.progress("repetition %d of %d is done", rep+1, cfg.Runs)
	}
	return runs, nil
}

func (c Config) progress(format string, a ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, a...))
	}
}

// threadCPU is what the calling thread has used, user and system. (getrusage leaves out what it used since the last
// tick.)
func threadCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}

// received is what the receiver's thread has to tell.
type received struct {
	cpu  time.Duration
	last time.Time
	err  error
}

// one is one run.
func one(cfg Config, w Way, gro bool) (Run, error) {
	p, err := newPair(cfg.Buffer, gro)
	if err != nil {
		return Run{}, err
	}
	s, err := newSender(p.send, w, cfg.Datagram)
	if err != nil {
		return Run{}, errors.Join(err, p.close())
	}
	r := newReceiver(p.recv, cfg.Datagram)
	var done atomic.Bool
	told := make(chan received, 1)
	go func() { // ends after done, when nothing has come for receiveTimeout; its result is awaited below
		runtime.LockOSThread() // and ends with the thread
		var out received
		before := threadCPU()
		for {
			ended := done.Load()
			err := r.call()
			if errors.Is(err, errTimeout) {
				if ended {
					break
				}
				continue
			}
			if err != nil {
				out.err = err
				break
			}
			out.last = time.Now()
		}
		out.cpu = threadCPU() - before
		told <- out
	}()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var sent, calls int64
	cpu, began := threadCPU(), time.Now()
	for sent*int64(cfg.Datagram) < cfg.Bytes && err == nil {
		var n int
		n, err = s.call(uint64(sent))
		calls += int64(n)
		sent += int64(s.datagrams())
	}
	took, used := time.Since(began), threadCPU()-cpu
	done.Store(true)
	got := <-told
	if err := errors.Join(err, got.err, p.close()); err != nil {
		return Run{}, err
	}
	if r.datagrams == 0 {
		return Run{}, errors.New("nothing was received")
	}
	mb, gotMB := float64(sent)*float64(cfg.Datagram)/1e6, float64(r.datagrams)*float64(cfg.Datagram)/1e6
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return Run{
		Way: w, GRO: gro, Sent: sent, Received: r.datagrams, Wrong: r.wrong,
		SentMBS: mb / took.Seconds(), RecvMBS: gotMB / got.last.Sub(began).Seconds(),
		SendCPU: ms(used) / mb, RecvCPU: ms(got.cpu) / gotMB, SendCalls: float64(calls) / mb,
		RecvCalls: float64(r.calls) / gotMB,
	}, nil
}
