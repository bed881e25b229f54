package mux

import (
	"testing"
)

// held is how much room the stream keeps for records.
func (s *InStream) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cap(s.ready) + cap(s.taken) + cap(s.assembly)
}

// TestBufferOfALargeRecordIsGivenBack sends one record of 16 MiB and then small ones: the stream's room shrinks again
// when its threshold says so.
func TestBufferOfALargeRecordIsGivenBack(t *testing.T) {
	record := makeRecord(nil, 7, 0, DefaultMaxRecord-30)
	small := makeRecord(nil, 7, 1, 64)
	large := len(record)
	for name, c := range map[string]struct {
		threshold int
		shrinks   bool
	}{
		"default":          {0, true},
		"64 KiB":           {MinShrink, true},
		"above the record": {128 << 20, false}, // append grows by a quarter
	} {
		for _, sink := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", pulled", true: ", sink"}[sink], func(t *testing.T) {
				p := newPair(t, pairConfig{recv: Config{ShrinkThreshold: c.threshold}})
				in, out := p.open(t)
				defer in.Close()
				got := make(chan int, 1)
				most := 0
				if sink {
					in.onRecords(func(records [][]byte, end *End) bool {
						for _, r := range records {
							got <- len(r)
						}
						return true
					})
				}
				next := func() int {
					if sink {
						return <-got
					}
					rec, err := in.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					most = max(most, in.held())
					return len(rec)
				}
				sent := make(chan error, 1)
				go func() { sent <- out.Send(t.Context(), record) }()
				if n := next(); n != large {
					t.Fatalf("%d bytes came, want %d", n, large)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := out.Send(t.Context(), small); err != nil {
						t.Fatal(err)
					}
					if n := next(); n != len(small) {
						t.Fatalf("%d bytes came, want %d", n, len(small))
					}
				}
				if !sink && most < large {
					t.Errorf("the record of %d bytes took room for %d", large, most)
				}
				limit := c.threshold
				if limit == 0 {
					limit = DefaultShrink
				}
				if n := in.held(); c.shrinks && n > limit {
					t.Errorf("%d bytes are held after the large record, want at most %d", n, limit)
				} else if !c.shrinks && n < large {
					t.Errorf("%d bytes are held, the threshold of %d should have kept them", n, limit)
				}
			})
		}
	}
}
