package peers

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestQueue: the engine meets the bound, is told when there is room, and the frames are what was put.
func TestQueue(t *testing.T) {
	q := newQueue()
	told := 0
	q.OnWritable(func() { told++ })
	for i := range queueRecords {
		if err := q.TryPut([]byte{byte(i)}); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := q.TryPut([]byte{0}); !errors.Is(err, responseplane.ErrWindowFull) {
		t.Fatalf("a record over the bound: %v", err)
	}
	frames, last, err := q.take(nil)
	if err != nil || last || told != 1 {
		t.Fatalf("take: last %v, %v, told %d times", last, err, told)
	}
	for i := range queueRecords {
		body, rest, end, ok, err := nextFrame(frames)
		if err != nil || !ok || end || len(body) != 1 || body[0] != byte(i) {
			t.Fatalf("frame %d is %v, end %v, %v", i, body, end, err)
		}
		frames = rest
	}
	if err := errors.Join(q.TryPut([]byte("x")), q.PutComplete([]byte("end"))); err != nil {
		t.Fatal(err)
	}
	if frames, last, err = q.take(nil); err != nil || !last || len(frames) != head+1+head+3 || told != 1 {
		t.Errorf("%q, last %v, %v, told %d times", frames, last, err, told)
	}
	done := make(chan struct{})
	close(done)
	if _, _, err := q.take(done); !errors.Is(err, errClosed) || !errors.Is(q.TryPut(nil), errClosed) {
		t.Errorf("after the end: %v, Err %v", err, q.Err())
	}
}

// TestNextFrame: a frame that is cut anywhere is not there yet; one that is too long is refused.
func TestNextFrame(t *testing.T) {
	whole := appendFrame(nil, []byte("abc"), endBit)
	for n := range whole {
		if _, rest, _, ok, err := nextFrame(whole[:n]); ok || err != nil || len(rest) != n {
			t.Errorf("%d of %d bytes: %v, %v", n, len(whole), ok, err)
		}
	}
	if _, _, _, _, err := nextFrame(binary.BigEndian.AppendUint32(nil, endBit-1)); err == nil {
		t.Error("a frame of 2 GiB is taken")
	}
}

// sides are a peer's two ends, and its broker, in this process. Each is closed when the test ends.
func sides(t *testing.T, p planebench.Peer, delivery string,
	serve func([]byte, planebench.PeerWriter) error) planebench.PeerFrontend {
	t.Helper()
	cfg := planebench.PeerConfig{Delivery: delivery, Load: planebench.Load{Concurrency: 4, OSL: 100},
		Log: slog.New(slog.DiscardHandler)}
	closing := func(c io.Closer) {
		t.Cleanup(func() {
			if err := errors.Join(c.Close(), c.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	config := func() planebench.PeerConfig {
		c := cfg
		var err error
		switch p.Over {
		case transport.PlaneTCP:
			c.Transport, err = tcp.New(tcp.Config{})
		case transport.PlaneQUIC:
			id, idErr := transport.NewIdentity()
			if idErr != nil {
				t.Fatal(idErr)
			}
			c.Transport, err = quic.New(quic.Config{Identity: id})
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.Transport != nil {
			closing(c.Transport)
		}
		return c
	}
	if p.Broker != nil {
		b, err := p.Broker(cfg)
		if err != nil {
			t.Fatal(err)
		}
		closing(b)
		if cfg.Broker, err = b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w, err := p.Worker(config(), serve)
	if err != nil {
		t.Fatal(err)
	}
	closing(w)
	address, err := w.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Frontend(config())
	if err != nil {
		t.Fatal(err)
	}
	closing(f)
	if err := f.Connect(t.Context(), 0, address); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestWorkerDies: a response whose worker ends in the middle never looks complete, and both sides end without waiting
// for each other.
func TestWorkerDies(t *testing.T) {
	for _, p := range All() {
		if p.Broker != nil {
			continue // nobody tells the subscriber; the harness kills such a run
		}
		t.Run(p.Name, func(t *testing.T) {
			writers := make(chan planebench.PeerWriter, 1)
			var worker planebench.PeerWorker
			make := p.Worker
			p.Worker = func(cfg planebench.PeerConfig,
				serve func([]byte, planebench.PeerWriter) error) (planebench.PeerWorker, error) {
				var err error
				worker, err = make(cfg, serve)
				return worker, err
			}
			f := sides(t, p, planebench.Pull, func(request []byte, w planebench.PeerWriter) error {
				if string(request) != "please" {
					t.Errorf("the request is %q", request)
				}
				if err := w.TryPut([]byte("one")); err != nil {
					t.Error(err)
				}
				writers <- w
				return nil
			})
			opened := goOpen(t, f)
			w := <-writers
			worker.Flush()
			res := <-opened
			if res == nil {
				return
			}
			batch, err := res.NextBatch(t.Context())
			if err != nil || len(batch) != 1 || string(batch[0]) != "one" {
				t.Fatalf("%q, %v", batch, err)
			}
			if err := worker.Close(); err != nil {
				t.Error(err)
			}
			if batch, err := res.NextBatch(t.Context()); err == nil || errors.Is(err, io.EOF) &&
				!errors.Is(err, io.ErrUnexpectedEOF) && res.Trailer() != nil {
				t.Errorf("after the worker's end: %q, %v", batch, err)
			}
			_ = res.Close() // its connection has gone
			for deadline := time.Now().Add(30 * time.Second); w.Err() == nil; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the writer does not learn of the end")
				}
			}
		})
	}
}

// goOpen opens a response in a goroutine, because some peers answer with the first record only.
func goOpen(t *testing.T, f planebench.PeerFrontend) <-chan planebench.PeerResponse {
	out := make(chan planebench.PeerResponse, 1)
	go func() { // ends with Open
		res, err := f.Open(t.Context(), 0, []byte("please"))
		if err != nil {
			t.Errorf("open: %v", err)
			res = nil
		}
		out <- res
	}()
	return out
}
