package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// TestWindowsRecordsAndStreams: with one processor, every window finishes with records of every size, up to half of
// it, a little more and much larger, from one stream to 64 at a time. Nothing hangs.
func TestWindowsRecordsAndStreams(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	planes := []string{transport.PlaneMemory, transport.PlaneTCP, transport.PlaneQUIC}
	if underRace {
		planes = planes[:1]
	}
	for _, plane := range planes {
		for _, window := range []int{4 << 10, 16 << 10, 64 << 10, 1 << 20, 16 << 20} {
			if (window == 16<<10 || window == 1<<20) && (underRace || plane != transport.PlaneMemory) {
				continue
			}
			start := time.Now()
			p, _, _ := newPlanePair(t, plane, pairConfig{
				recv: Config{Window: window, MaxBuffered: 1 << 40}, send: Config{MaxReplay: 1 << 40}})
			most := min(2<<20, 32*window) // bytes of a case, so that the table stays quick
			if underRace {
				most /= 8
			}
			half := window/2 - wire.HeaderSize
			for _, size := range []int{24, window / 16, half, half + 1, window, 3*window + 7} {
				for _, streams := range []int{1, 8, 64} {
					if streams == 8 && plane != transport.PlaneMemory || size > DefaultMaxRecord ||
						size*streams > 32<<20 && streams > 1 {
						continue
					}
					records := min(100, max(3, most/(size*streams)))
					name := fmt.Sprintf("plane=%s/window=%d/size=%d/streams=%d", plane, window, size, streams)
					sized(t, p, name, streams, records, size)
				}
			}
			p.settled(t)
			p.close(t)
			t.Logf("plane=%s/window=%d: %v", plane, window, time.Since(start))
		}
	}
}

// largeRecord is makeRecord, quick for megabytes; checkRecord knows it. size is all of it.
func largeRecord(b []byte, id uint64, i, size int) []byte {
	b = binary.BigEndian.AppendUint64(b[:0], id)
	b = binary.BigEndian.AppendUint64(b, uint64(i))
	b = slices.Grow(b, size)[:size-4]
	for k := 16; k < len(b); k += 64 {
		b[k] = byte(uint64(k)/64 + id + uint64(i))
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// sized runs streams at once whose records all have one size; a consumer takes one record after the other.
func sized(t *testing.T, p *pair, name string, streams, records, size int) {
	var wg sync.WaitGroup
	finished := make(chan struct{})
	for s := range streams {
		in, out := p.open(t)
		id := uint64(s + 1)
		wg.Go(func() {
			var rec []byte
			for i := range records {
				rec = largeRecord(rec, id, i, size)
				if err := putEither(t, out, rec, i); err != nil {
					t.Errorf("%s: stream %d: record %d: %v", name, id, i, err)
					return
				}
			}
			if err := out.Complete(nil); err != nil {
				t.Errorf("%s: stream %d: %v", name, id, err)
			}
		})
		wg.Go(func() {
			defer in.Close()
			for i := 0; ; i++ {
				rec, err := in.Next(t.Context())
				if err == io.EOF && i == records {
					return
				}
				if err == nil {
					err = checkRecord(rec, id, i)
				}
				if err != nil {
					t.Errorf("%s: stream %d, record %d of %d: %v", name, id, i, records, err)
					return
				}
			}
		})
	}
	go func() { wg.Wait(); close(finished) }()
	select {
	case <-finished:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: hangs", name)
	}
}

// putEither sends a record by waiting or by trying, in turn.
func putEither(t *testing.T, out *OutStream, rec []byte, i int) error {
	if i%2 == 0 {
		return out.Send(t.Context(), rec)
	}
	room := make(chan struct{}, 1)
	out.OnWritable(func() { signal(room) })
	for {
		err := out.TrySend(rec)
		switch {
		case errors.Is(err, ErrRecordTooLarge):
			return out.Send(t.Context(), rec)
		case !errors.Is(err, ErrWindowFull):
			return err
		}
		<-room
	}
}
