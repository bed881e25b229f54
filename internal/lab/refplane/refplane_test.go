package refplane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// pair is a frontend and a worker that know each other.
func pair(t *testing.T, plane string, mode Mode, interval time.Duration) (*Frontend, *Worker, string) {
	t.Helper()
	side := func() Config {
		id, err := transport.NewIdentity()
		if err != nil {
			t.Fatal(err)
		}
		var tr transport.Transport
		if plane == transport.PlaneQUIC {
			tr, err = quic.New(quic.Config{Identity: id, RecvBuffer: 1 << 20, SendBuffer: 1 << 20})
		} else {
			tr, err = tcp.New(tcp.Config{Identity: id})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tr.Close() })
		return Config{Mode: mode, Interval: interval, Transport: tr, Identity: id, Name: "n"}
	}
	w, err := NewWorker(side())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	f, err := NewFrontend(side())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.Listen(ctx); err != nil {
		t.Fatal(err)
	}
	n := w.Descriptor()
	if err := n.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := f.AddPeer(ctx, n); err != nil {
		t.Fatal(err)
	}
	return f, w, n.ID
}

// each runs a test for every mode over both kinds of plane.
func each(t *testing.T, f func(t *testing.T, plane string, mode Mode)) {
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneQUIC} {
		for _, mode := range Modes() {
			if !mode.Over(plane) {
				continue
			}
			t.Run(plane+"/"+string(mode), func(t *testing.T) { f(t, plane, mode) })
		}
	}
}

// record is number n of response id, of a length that differs.
func record(id, n int) []byte {
	b := make([]byte, 8+n%50)
	binary.BigEndian.PutUint32(b, uint32(id))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	return b
}

// TestEveryRecordInOrder: pulled and sunk responses, all at once, each whole and in order.
func TestEveryRecordInOrder(t *testing.T) {
	each(t, func(t *testing.T, plane string, mode Mode) {
		f, w, id := pair(t, plane, mode, 0)
		const responses, records = 40, 200
		var wg sync.WaitGroup
		writers := make([]*Writer, responses)
		for i := range responses {
			r, err := f.Mint(id)
			if err != nil {
				t.Fatal(err)
			}
			next := 0
			check := func(batch [][]byte) {
				for _, b := range batch {
					if want := record(i, next); string(b) != string(want) {
						t.Errorf("response %d: record %d is %x", i, next, b)
					}
					next++
				}
			}
			over := func(err error) {
				if !errors.Is(err, io.EOF) || next != records || string(r.Trailer()) != fmt.Sprint("end ", i) {
					t.Errorf("response %d ends with %v after %d records, trailer %q", i, err, next, r.Trailer())
				}
				wg.Done()
			}
			wg.Add(1)
			if i%2 == 0 {
				r.OnRecords(func(batch [][]byte, err error) bool {
					check(batch)
					if err != nil {
						over(err)
					}
					return true
				})
			} else {
				go func() { // ends with the response; joined by wg
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					for {
						batch, err := r.NextBatch(ctx)
						if err != nil {
							over(err)
							return
						}
						check(batch)
					}
				}()
			}
			defer r.Close()
			if writers[i], err = w.Attach(r.Terms()); err != nil {
				t.Fatal(err)
			}
		}
		for n := range records {
			for i, wr := range writers {
				if err := wr.TryPut(record(i, n)); err != nil {
					t.Fatal(err)
				}
			}
			w.Flush()
		}
		for i, wr := range writers {
			if err := wr.PutComplete(fmt.Append(nil, "end ", i)); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		wg.Wait()
		in, out := f.Stats(), w.Stats()
		if in.RecordsIn != responses*records || out.RecordsOut != responses*records ||
			in.Planes[plane].RecordsIn != responses*records || out.OpenStreams != 0 {
			t.Errorf("%d records in, %d out, %d open", in.RecordsIn, out.RecordsOut, out.OpenStreams)
		}
		switch writes := out.Writes["write"]; mode {
		case PerRecord:
			if writes < responses*records {
				t.Errorf("%d writes for %d records", writes, responses*records)
			}
		case Batched:
			if writes > 2*records+2 { // one for each flush at most, and a hello
				t.Errorf("%d writes for %d flushes", writes, records+1)
			}
		}
	})
}

// TestStopAndFail: a frontend's stop reaches the writer, and a failure the consumer.
func TestStopAndFail(t *testing.T) {
	each(t, func(t *testing.T, plane string, mode Mode) {
		f, w, id := pair(t, plane, mode, 0)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, wr := open(t, f, w, id)
		if err := wr.TryPut([]byte("x")); err != nil {
			t.Fatal(err)
		}
		w.Flush()
		if batch, err := r.NextBatch(ctx); err != nil || len(batch) != 1 {
			t.Fatalf("%q %v", batch, err)
		}
		for r.Stop(); !wr.StopRequested(); time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal("the stop does not come")
			}
		}
		if err := wr.Fail(responseplane.Failure{Code: responseplane.CodeValidation, Text: "no"}); err != nil {
			t.Fatal(err)
		}
		_, err := r.NextBatch(ctx)
		var e *responseplane.Error
		if !errors.As(err, &e) || e.Kind != responseplane.EndFailed || e.Code != responseplane.CodeValidation ||
			e.Text != "no" {
			t.Errorf("got %v", err)
		}
		r.Close()
		if n := f.Stats().OpenStreams; n != 0 {
			t.Errorf("%d open", n)
		}
	})
}

// open opens a response on both sides.
func open(t *testing.T, f *Frontend, w *Worker, id string) (*Response, *Writer) {
	t.Helper()
	r, err := f.Mint(id)
	if err != nil {
		t.Fatal(err)
	}
	wr, err := w.Attach(r.Terms())
	if err != nil {
		t.Fatal(err)
	}
	return r, wr
}

// TestDeath: when one side ends, the other's responses end as lost.
func TestDeath(t *testing.T) {
	each(t, func(t *testing.T, plane string, mode Mode) {
		f, w, id := pair(t, plane, mode, 0)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		r, wr := open(t, f, w, id)
		defer r.Close()
		_ = wr.TryPut([]byte("x"))
		w.Flush()
		if _, err := r.NextBatch(ctx); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.NextBatch(ctx); !errors.Is(err, responseplane.ErrLost) {
			t.Errorf("got %v", err)
		}
		if err := wr.TryPut([]byte("y")); !errors.Is(err, responseplane.ErrLost) {
			t.Errorf("the writer takes a record: %v", err)
		}
		if _, err := w.Attach(r.Terms()); err == nil {
			t.Error("a closed worker attaches")
		}
	})
}

// TestInterval: writes of a connection are the interval apart, however often it is flushed.
func TestInterval(t *testing.T) {
	const interval = 20 * time.Millisecond
	f, w, id := pair(t, transport.PlaneTCP, Batched, interval)
	r, err := f.Mint(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got atomic.Int64
	r.OnRecords(func(batch [][]byte, _ error) bool { got.Add(int64(len(batch))); return true })
	wr, err := w.Attach(r.Terms())
	if err != nil {
		t.Fatal(err)
	}
	began, put := time.Now(), int64(0)
	for time.Since(began) < 10*interval {
		if err := wr.TryPut([]byte("x")); err != nil {
			t.Fatal(err)
		}
		put++
		w.Flush()
		time.Sleep(interval / 20)
	}
	for deadline := time.Now().Add(patience); got.Load() < put; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d records came", got.Load(), put)
		}
	}
	if most := uint64(time.Since(began)/interval) + 3; w.Stats().Writes["write"] > most {
		t.Errorf("%d writes of %d records in %v", w.Stats().Writes["write"], put, time.Since(began))
	}
}

// TestSlowConsumer: without windows a consumer that takes nothing ends as lost, and nobody else is held up.
func TestSlowConsumer(t *testing.T) {
	f, w, id := pair(t, transport.PlaneTCP, Batched, 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	slow, wr := open(t, f, w, id)
	defer slow.Close()
	big := make([]byte, 512<<10)
	for sent := 0; sent <= maxBuffered; {
		if err := wr.TryPut(big); errors.Is(err, responseplane.ErrWindowFull) {
			time.Sleep(time.Millisecond)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		sent += len(big)
		w.Flush()
	}
	for f.Stats().RecordsIn*uint64(len(big)) <= maxBuffered {
		if ctx.Err() != nil {
			t.Fatal("the records do not come")
		}
		time.Sleep(time.Millisecond)
	}
	_, err := slow.NextBatch(ctx)
	for err == nil { // what was kept comes first
		_, err = slow.NextBatch(ctx)
	}
	if !errors.Is(err, responseplane.ErrLost) {
		t.Errorf("got %v", err)
	}
	quick, err := f.Mint(id)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Close()
	if wr, err = w.Attach(quick.Terms()); err != nil {
		t.Fatal(err)
	}
	if err := wr.TryPut([]byte("x")); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	if batch, err := quick.NextBatch(ctx); err != nil || len(batch) != 1 {
		t.Errorf("%q %v", batch, err)
	}
}

func TestValidate(t *testing.T) {
	if _, err := NewFrontend(Config{Mode: "x", Interval: time.Second}); err == nil {
		t.Error("no complaint")
	}
	if PerResponse.Over(transport.PlaneQUIC) || !PerResponse.Over(transport.PlaneTLS) ||
		!Batched.Over(transport.PlaneQUIC) {
		t.Error("a connection for each response runs over tcp and tls only")
	}
	if _, err := NewWorker(Config{Mode: PerRecord, Interval: time.Millisecond}); err == nil {
		t.Error("no complaint")
	}
	for _, b := range [][]byte{nil, make([]byte, 17), append([]byte{9}, make([]byte, 16)...)} {
		if _, err := decodeTerms(b); err == nil {
			t.Errorf("terms %x were taken", b)
		}
	}
	for _, a := range Arms() {
		if a.Name == "" || modeByte(a.Mode) == 0 {
			t.Errorf("arm %+v", a)
		}
	}
}
