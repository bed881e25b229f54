package streambench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// upTimeout bounds the wait for a link with all its lanes.
const upTimeout = 20 * time.Second

// measured is one repetition of a cell.
type measured struct {
	elapsed time.Duration
	busiest float64 // bytes of the busiest lane over the mean of all lanes
}

// WrongItemError says that a stream's items did not come as they were written.
type WrongItemError struct{ Stream, Want, Size int }

func (e *WrongItemError) Error() string {
	return fmt.Sprintf("stream %d: item %d (of %d bytes) is missing or not the next one", e.Stream, e.Want, e.Size)
}

// run measures one cell once: so many items of a size, split evenly over streams, after a warm-up of a tenth of them.
func run(ctx context.Context, ctl *transportbench.Control, log *slog.Logger, plane string, lanes, streams, items,
	size int) (m measured, err error) {
	var d responseplane.Descriptor
	if err := ctl.Call("open", plane, &d); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, ctl.Call("close", nil, nil)) }()
	id, err := transport.NewIdentity()
	if err != nil {
		return m, err
	}
	s := settings(plane, lanes)
	trs, err := s.Transports(id, log)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, trs[0].Close()) }()
	f, err := responseplane.NewFrontend(s.Frontend(id, trs, log))
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	upCtx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	node, err := f.AddPeer(d)
	if err != nil {
		return m, err
	}
	if err := allLanes(upCtx, f, lanes); err != nil {
		return m, err
	}
	if _, err := round(ctx, ctl, f, node, streams, max(items/10, streams), size); err != nil {
		return m, err
	}
	before := laneBytes(f)
	if m.elapsed, err = round(ctx, ctl, f, node, streams, items, size); err != nil {
		return m, err
	}
	var total, most uint64
	for lane, n := range laneBytes(f) {
		n -= before[lane]
		total, most = total+n, max(most, n)
	}
	m.busiest = float64(most) * float64(lanes) / float64(total)
	return m, nil
}

// allLanes waits until the link has all its lanes: streams are placed on those that are up.
func allLanes(ctx context.Context, f *responseplane.Frontend, lanes int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		have := 0
		for _, l := range f.Stats().Lanes {
			if l.Up {
				have++
			}
		}
		if have >= lanes {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d lanes came up: %w", have, lanes, ctx.Err())
		}
	}
}

func laneBytes(f *responseplane.Frontend) map[int]uint64 {
	out := map[int]uint64{}
	for _, l := range f.Stats().Lanes {
		out[l.Lane] += l.BytesIn
	}
	return out
}

// round opens the streams, has the worker write, and reads all of them to their ends. The time is from the request to
// write until the last end.
func round(ctx context.Context, ctl *transportbench.Control, f *responseplane.Frontend, node transport.NodeID, streams,
	items, size int) (time.Duration, error) {
	s := start{Size: size}
	responses := make([]*responseplane.Response, streams)
	defer func() {
		for _, r := range responses {
			if r != nil {
				r.Close()
			}
		}
	}()
	for i := range responses {
		var err error
		if responses[i], err = f.Mint(ctx, node, responseplane.MintOptions{}); err != nil {
			return 0, err
		}
		s.Terms = append(s.Terms, responses[i].Terms())
		s.Items = append(s.Items, transportbench.Share(items, streams, i))
	}
	began := time.Now()
	if err := ctl.Call("start", s, nil); err != nil {
		return 0, err
	}
	errs := make([]error, streams)
	var wg sync.WaitGroup
	for i, r := range responses {
		wg.Go(func() { errs[i] = read(ctx, r, i, s.Items[i], size) })
	}
	wg.Wait()
	elapsed := time.Since(began)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	return elapsed, ctl.Call("written", nil, nil)
}

func read(ctx context.Context, r *responseplane.Response, stream, items, size int) error {
	next := 0
	for {
		batch, err := r.NextBatch(ctx)
		for _, item := range batch {
			if len(item) != size || binary.BigEndian.Uint32(item) != uint32(stream) ||
				binary.BigEndian.Uint32(item[4:]) != uint32(next) {
				return &WrongItemError{stream, next, size}
			}
			next++
		}
		switch {
		case errors.Is(err, io.EOF) && next == items:
			return nil
		case errors.Is(err, io.EOF):
			return &WrongItemError{stream, next, size}
		case err != nil:
			return err
		}
	}
}
