package mux

import (
	"errors"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// Terms that a worker must not take, and taking none of them changes anything: the right ones are taken afterwards.
func TestTermsThatAreRefused(t *testing.T) {
	f := newRawFront(t, Config{MaxReplay: 64 << 10}, memory.Config{})
	l := f.lane(t)
	f.number = 5
	good := f.terms(l, 1)
	for _, c := range []struct {
		name string
		bad  func(*wire.Terms)
		want error
	}{
		{"another worker", func(t *wire.Terms) { t.Worker[0]++ }, ErrStaleTerms},
		{"another frontend", func(t *wire.Terms) { t.Frontend[0]++ }, ErrNoLink},
		{"another link", func(t *wire.Terms) { t.Link++ }, ErrNoLink},
		{"a lane beyond the link's", func(t *wire.Terms) { t.Lane = 1 }, ErrStaleTerms},
		{"a slot beyond the maximum", func(t *wire.Terms) { t.Slot = wire.MakeSlot(65537, 1) }, ErrStaleTerms},
		{"slot 0", func(t *wire.Terms) { t.Slot = 0 }, nil},
		{"number 0", func(t *wire.Terms) { t.Number = 0 }, nil},
		{"a number beyond the highest", func(t *wire.Terms) { t.Number = wire.MaxNumber + 1 }, nil},
		{"a small window", func(t *wire.Terms) { t.Window = 4095 }, nil},
		{"a large window", func(t *wire.Terms) { t.Window = 16<<20 + 1 }, nil},
		{"more than all windows may be", func(t *wire.Terms) { t.Window = 64<<10 + 1 }, ErrBusy},
	} {
		terms := good
		c.bad(&terms)
		if _, err := f.send.Attach(f.mint(&terms)); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	b := f.mint(&good)
	for name, b := range map[string][]byte{"none": nil, "half": b[:40], "one byte less": b[:79], "one byte": b[:1]} {
		if _, err := f.send.Attach(b); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	for i := range b { // every byte is covered by the key, but the version, which is refused by itself
		forged := slices.Clone(b)
		forged[i] ^= 0x10
		_, err := f.send.Attach(forged)
		if err == nil {
			t.Fatalf("terms with byte %d changed were taken", i)
		}
		if i < 2 && !errors.Is(err, ErrTermsVersion) {
			t.Errorf("another version: %v", err)
		}
	}
	if st := f.send.Stats(); st.CommittedBytes != 0 || st.OpenStreams != 0 || st.StreamsOpened != 0 {
		t.Errorf("%d bytes are committed, %d streams open", st.CommittedBytes, st.OpenStreams)
	}
	out, err := f.send.Attach(append(b, "a tail of a later version"...))
	if err != nil {
		t.Fatal(err)
	}
	refused := f.send.Stats().Refused
	if _, err := f.send.Attach(b); !errors.Is(err, ErrStaleTerms) {
		t.Errorf("twice: %v", err)
	}
	if st := f.send.Stats(); st.CommittedBytes != 64<<10 || st.Refused != refused+1 {
		t.Errorf("%d bytes are committed, %d refused", st.CommittedBytes, st.Refused)
	}
	_ = out.Complete(nil)
	if _, ok := l.await(t, "END", endOf(good.Number)); !ok {
		t.Error("the lane has died")
	}
}

// A worker may allow any number of streams; the frontend's tables grow with what it mints, not with what it is told.
func TestMaxStreamsOfAWorker(t *testing.T) {
	for _, c := range []struct {
		says uint32
		fits int
	}{{0, 0}, {3, 3}, {1<<32 - 1, 100}} {
		w := newRawWorker(t, Config{}, memory.Config{}, func(h *wire.HelloBody) []byte {
			h.MaxStreams = c.says
			return wire.AppendHello(nil, h)
		})
		w.lane(t)
		for i := range 100 {
			in, err := w.recv.Mint(t.Context(), workerID, MintOptions{})
			if (err == nil) != (i < c.fits) || err != nil && !errors.Is(err, ErrBusy) {
				t.Fatalf("stream %d of %d allowed: %v", i+1, c.says, err)
			}
			if in != nil {
				defer in.Close()
			}
		}
	}
}

// A link that its frontend has left is forgotten when the hold of its lanes is over, with its table and its streams.
func TestLinksAreForgotten(t *testing.T) {
	inFakeTime(t, "", func(t *testing.T) {
		f := newRawFront(t, Config{}, memory.Config{})
		l := f.lane(t)
		out := f.attach(t, f.terms(l, 60_000))
		_ = l.conn.Close()
		waitFor(t, "no link", func() bool { return f.send.Stats().Links == 0 })
		<-out.Done()
		if got, _ := endType(out.Err()); got != EndLost {
			t.Errorf("the writer is told: %v", out.Err())
		}
		terms := f.terms(l, 1)
		if _, err := f.send.Attach(f.mint(&terms)); !errors.Is(err, ErrNoLink) {
			t.Errorf("attach: %v", err)
		}
		if st := f.send.Stats(); st.CommittedBytes != 0 || st.OpenStreams != 0 {
			t.Errorf("%d bytes are committed, %d streams open", st.CommittedBytes, st.OpenStreams)
		}
	})
}
