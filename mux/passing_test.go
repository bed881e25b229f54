package mux

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A record for a sink stays in the lane's buffer until the sink has had it. Whatever comes between its arrival and
// that, it is delivered as it was sent, once, or kept: the buffer is overwritten by the next read.
func TestRecordThatPassesThroughTheLanesBuffer(t *testing.T) {
	for _, c := range []struct {
		name string
		// between runs on the lane's reader after the read that brought B's records and before B's sink is called.
		between func(t *testing.T, w *rawWorker, b *InStream) (pulled []string)
		sent    [][]byte // B's bodies in that read
		more    bool     // the first of them is a fragment of the second
		refuse  bool     // B's sink says "not now" the first time
		end     bool     // B's END is in the same read
		want    []string // all that the consumer got in the end
	}{
		{name: "alone", sent: [][]byte{[]byte("hello")}, want: []string{"hello"}},
		{name: "empty", sent: [][]byte{{}}, want: []string{""}},
		{name: "two in a read", sent: [][]byte{[]byte("hello"), []byte("there")}, want: []string{"hello", "there"}},
		{name: "in fragments", sent: [][]byte{[]byte("hel"), []byte("lo")}, more: true, want: []string{"hello"}},
		{name: "with its end", sent: [][]byte{[]byte("hello")}, end: true, want: []string{"hello"}},
		{name: "not now", sent: [][]byte{[]byte("hello")}, refuse: true, want: []string{"hello"}},
		{name: "not now, two", sent: [][]byte{[]byte("hello"), []byte("there")}, refuse: true,
			want: []string{"hello", "there"}},
		{name: "looked at", sent: [][]byte{[]byte("hello")}, want: []string{"hello"},
			between: func(t *testing.T, _ *rawWorker, b *InStream) []string {
				if n := b.Inspect().Buffered; n != 5 {
					t.Errorf("%d bytes are buffered, expected 5", n)
				}
				return nil
			}},
		{name: "pulled", sent: [][]byte{[]byte("hello")}, want: []string{"hello"},
			between: func(t *testing.T, _ *rawWorker, b *InStream) []string {
				batch, err := b.NextBatch(context.Background())
				if err != nil {
					t.Error(err)
				}
				return texts(batch)
			}},
		{name: "killed", sent: [][]byte{[]byte("hello")},
			between: func(_ *testing.T, _ *rawWorker, b *InStream) []string {
				b.Kill(End{Type: EndKilled})
				return nil
			}},
		{name: "with its end, and the link is lost", sent: [][]byte{[]byte("hello")}, end: true,
			want: []string{"hello"},
			between: func(t *testing.T, w *rawWorker, _ *InStream) []string {
				gone := make(chan struct{})
				go func() { defer close(gone); w.recv.RemovePeer(workerID) }() // it waits for the reader, which is here
				t.Cleanup(func() { <-gone })
				return nil
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newRawWorker(t, Config{}, memory.Config{}, nil)
			l := w.lane(t)
			a, aTerms := w.mint(t, MintOptions{})
			b, bTerms := w.mint(t, MintOptions{})
			defer a.Close()
			defer b.Close()
			got, ended := make(chan []string, 100), make(chan *End, 1)
			first := true
			a.onRecords(func(records [][]byte, _ *End) bool {
				if len(records) > 0 && c.between != nil && first {
					first = false
					got <- c.between(t, w, b)
				}
				return true
			})
			calls := 0
			b.onRecords(func(records [][]byte, end *End) bool {
				calls++
				if c.refuse && calls == 1 {
					got <- nil
					return false
				}
				got <- texts(records)
				if end != nil {
					ended <- end
				}
				return true
			})
			l.send(t, slices.Concat(wire.AppendOpen(nil, aTerms.Slot, aTerms.Number, aTerms.Key),
				wire.AppendOpen(nil, bTerms.Slot, bTerms.Number, bTerms.Key)))
			one := data(wire.Data, aTerms.Slot, []byte("a"))
			for i, body := range c.sent {
				kind := wire.Data
				if c.more && i == 0 {
					kind = wire.DataMore
				}
				one = append(one, data(kind, bTerms.Slot, body)...)
			}
			if c.end {
				one = append(one, end(bTerms.Slot, wire.EndBody{Number: bTerms.Number, Type: EndComplete, Records: 1,
					Bytes: uint64(len(c.sent[0]))})...)
			}
			if _, err := l.conn.Write(one); err != nil {
				t.Fatal(err)
			}
			if c.end {
				select {
				case <-ended:
				case <-time.After(guard):
					t.Fatal("the sink was never told of the end")
				}
			} else {
				l.alive(t)
				// The lane's buffer is overwritten, then there may be a further record.
				l.send(t, data(wire.Data, aTerms.Slot, bytes.Repeat([]byte{0xff}, 1<<10)))
				l.alive(t)
			}
			var all []string
			if c.refuse {
				batch, err := b.NextBatch(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, texts(batch)...)
			}
			for len(got) > 0 {
				all = append(all, <-got...)
			}
			if fmt.Sprint(all) != fmt.Sprint(c.want) || len(all) != len(c.want) {
				t.Errorf("the consumer got %q, expected %q", all, c.want)
			}
		})
	}
}

func texts(records [][]byte) (s []string) {
	for _, r := range records {
		s = append(s, string(r))
	}
	return s
}
