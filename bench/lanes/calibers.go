package lanes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
)

// CaliberConfig says how much Calibers does.
type CaliberConfig struct {
	Bytes    int64 // of a transfer over a socket
	Memory   int64 // of a transfer without sockets
	Echoes   int   // of 1 KiB
	Runs     int   // of each caliber, interleaved
	Log      *slog.Logger
	Progress func(string)
}

// echoBytes is the size of an echo.
const echoBytes = 1 << 10

// Names of calibers, or what they begin with.
const (
	freshLane    = "one lane, real handshake"
	warmLane     = "one lane, warm connection"
	laneEcho     = "echo of 1 KiB"
	fourLane     = "four lanes"
	loss         = "loss"
	libraryOne   = "library without sockets, one stream"
	libraryEcho  = "library without sockets, echo of 1 KiB"
	libraryFour  = "library without sockets, four streams"
	libraryUnrel = "library, datagrams that came"
)

// Base is the caliber that one is compared with, "" for none: rates with the warm lane, what runs without sockets with
// the same over them.
func Base(caliber string) string {
	if rest, ok := strings.CutPrefix(caliber, libraryEcho); ok {
		return laneEcho + rest
	}
	switch {
	case caliber == libraryFour:
		return libraryOne
	case slices.Contains([]string{freshLane, fourLane, libraryOne, libraryUnrel}, caliber),
		strings.HasPrefix(caliber, loss):
		return warmLane
	}
	return ""
}

// Figure is one figure of one run.
type Figure struct {
	Caliber string  `json:"caliber"`
	Run     int     `json:"run"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
}

// figures collects.
type figures struct {
	run int
	out []Figure
}

func (f *figures) add(caliber, unit string, value float64) {
	f.out = append(f.out, Figure{caliber, f.run, unit, value})
}

func (f *figures) rate(caliber string, bytes int64, took time.Duration) {
	f.add(caliber, "MB/s", float64(bytes)/1e6/took.Seconds())
}

func (f *figures) times(caliber string, v []time.Duration) {
	slices.Sort(v)
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", .5}, {"p99", .99}, {"p99.9", .999}} {
		f.add(caliber+" "+p.name, "us",
			float64(v[min(int(p.share*float64(len(v))), len(v)-1)])/float64(time.Microsecond))
	}
}

// Calibers measures plane quic: handshake, one lane fresh and warm, echoes, four lanes, loss; and the QUIC library
// alone, without sockets, and its datagrams.
func Calibers(ctx context.Context, cfg CaliberConfig) ([]Figure, error) {
	f := &figures{}
	steps := []func(context.Context, CaliberConfig, *figures) error{oneLane, fourLanes, lossy, inMemory, datagrams}
	for rep := range cfg.Runs {
		f.run = rep + 1
		for _, step := range benchtable.Order(steps, rep) {
			if err := step(ctx, cfg, f); err != nil {
				return f.out, errors.Join(context.Cause(ctx), err)
			}
		}
		if cfg.Progress != nil {
			cfg.Progress(fmt.Sprintf("repetition %d of %d is done", rep+1, cfg.Runs))
		}
	}
	return f.out, nil
}

// oneLane measures a handshake, a transfer on the new connection, one on the warm connection, and echoes.
func oneLane(ctx context.Context, cfg CaliberConfig, f *figures) (err error) {
	began := time.Now()
	p, err := newPair(ctx, quic.Config{}, path{}, cfg.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	stop := context.AfterFunc(ctx, func() { _ = p.dialled.Close() })
	defer stop()
	f.add("handshake and first byte", "ms", float64(p.handshake)/float64(time.Millisecond))
	opened := time.Since(began) - p.handshake // keys, certificates and sockets, which are not a part of it
	if err := transfer(p.accepted, p.dialled, cfg.Bytes); err != nil {
		return err
	}
	f.rate(freshLane, cfg.Bytes, time.Since(began)-opened)
	began = time.Now()
	if err := transfer(p.accepted, p.dialled, cfg.Bytes); err != nil {
		return err
	}
	f.rate(warmLane, cfg.Bytes, time.Since(began))
	v, err := echoes(p.dialled, p.accepted, cfg.Echoes)
	if err != nil {
		return err
	}
	f.times(laneEcho, v)
	return nil
}

// echoes sends n times 1 KiB there and back, one at a time.
func echoes(a, b io.ReadWriter, n int) ([]time.Duration, error) {
	told := make(chan error, 1)
	go func() { // ends after n echoes or with the connection; awaited below
		buf := make([]byte, echoBytes)
		for range n {
			if _, err := io.ReadFull(b, buf); err != nil {
				told <- err
				return
			}
			if _, err := b.Write(buf); err != nil {
				told <- err
				return
			}
		}
		told <- nil
	}()
	out, back := make([]byte, echoBytes), make([]byte, echoBytes)
	var v []time.Duration
	for i := range n {
		out[0], out[echoBytes-1] = byte(i), byte(i>>8)
		began := time.Now()
		if _, err := a.Write(out); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(a, back); err != nil {
			return nil, err
		}
		v = append(v, time.Since(began))
		if back[0] != byte(i) || back[echoBytes-1] != byte(i>>8) {
			return nil, fmt.Errorf("echo %d came back as another", i)
		}
	}
	return v, <-told
}

// fourLanes measures a transfer over four lanes at once, a quarter each.
func fourLanes(ctx context.Context, cfg CaliberConfig, f *figures) (err error) {
	p, err := newPair(ctx, quic.Config{}, path{}, cfg.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	stop := context.AfterFunc(ctx, func() { _ = p.close() })
	defer stop()
	dialled, accepted := []transport.Conn{p.dialled}, []transport.Conn{p.accepted}
	for i := 1; i < 4; i++ {
		d, a, err := p.lane(ctx, p.listener.Endpoints()[0].String(), i)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close(), a.Close()) }()
		dialled, accepted = append(dialled, d), append(accepted, a)
	}
	began := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(dialled))
	for i := range dialled {
		wg.Go(func() { errs[i] = transfer(accepted[i], dialled[i], cfg.Bytes/4) })
	}
	wg.Wait()
	f.rate(fourLane, cfg.Bytes/4*4, time.Since(began))
	return errors.Join(errs...)
}

// lossy measures a lane through a relay that drops and delays.
func lossy(ctx context.Context, cfg CaliberConfig, f *figures) error {
	for _, through := range []path{{0.01, 0}, {0.05, 0}, {0.01, 100 * time.Microsecond},
		{0.05, 100 * time.Microsecond}} {
		if err := oneLossy(ctx, cfg, f, through); err != nil {
			return err
		}
	}
	return nil
}

func oneLossy(ctx context.Context, cfg CaliberConfig, f *figures, through path) (err error) {
	p, err := newPair(ctx, quic.Config{}, through, cfg.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	stop := context.AfterFunc(ctx, func() { _ = p.dialled.Close() })
	defer stop()
	bytes := cfg.Bytes / 8 // a lossy path is slow
	began := time.Now()
	if err := transfer(p.accepted, p.dialled, bytes); err != nil {
		return err
	}
	f.rate(fmt.Sprintf(loss+" %.0f%%, round trip + %v", 100*through.loss, through.rtt), bytes, time.Since(began))
	return nil
}
