package mux

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// placed is a stream of the churn: how many records it still has to send, and their size.
type placed struct {
	in   *InStream
	out  *OutStream
	left int
	size int
}

// placementLoad is how the streams of a churn send.
type placementLoad struct {
	name string
	// records is how long a stream is; perPass is how many of its records one pass sends.
	records func(r *rand.Rand) int
	perPass func(r *rand.Rand) int
	size    func(r *rand.Rand) int
}

// pareto draws a heavy-tailed length: most streams are short, a few a hundred times longer.
func pareto(r *rand.Rand, least, most float64, alpha float64) int {
	return int(min(least/math.Pow(1-r.Float64(), 1/alpha), most))
}

// TestPlacement: under constant churn of streams of heavy-tailed lengths, the busiest lane carries little more than
// the mean.
func TestPlacement(t *testing.T) {
	const lanes = 8
	for _, load := range []placementLoad{
		// A pass makes one token of each stream.
		{"token", func(r *rand.Rand) int { return pareto(r, 8, 4096, 1.1) }, func(*rand.Rand) int { return 1 },
			func(r *rand.Rand) int { return 40 + r.IntN(80) }},
		// Streams of very different speeds: some send a few records in a pass, some dozens.
		{"speeds", func(r *rand.Rand) int { return pareto(r, 8, 1024, 1.1) },
			func(r *rand.Rand) int { return 1 + r.IntN(32) }, func(r *rand.Rand) int { return 40 + r.IntN(80) }},
		// Streams whose records are of very different sizes.
		{"sizes", func(r *rand.Rand) int { return pareto(r, 8, 512, 1.1) }, func(*rand.Rand) int { return 1 },
			func(r *rand.Rand) int { return pareto(r, 32, 160, 1.1) }},
	} {
		for _, open := range []int{64, 256} {
			for seed := range uint64(2) {
				inFakeTime(t, fmt.Sprintf("%s/streams=%d/seed=%d", load.name, open, seed), func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, uint64(open)))
					p := newPair(t, pairConfig{recv: Config{Lanes: lanes, GapMax: -1}})
					streams := make([]*placed, open)
					record := make([]byte, 4096)
					begun, pass := 0, 0
					const total = 4000
					for begun < total {
						for i, s := range streams {
							if s == nil {
								s = &placed{left: load.records(r), size: load.size(r)}
								s.in, s.out = p.open(t)
								streams[i] = s
								begun++
							}
							n := min(s.left, load.perPass(r))
							for range n {
								if err := s.out.Put(t.Context(), record[:s.size]); err != nil {
									t.Fatal(err)
								}
							}
							s.left -= n
						}
						p.send.Flush()
						synctest.Wait()
						for i, s := range streams {
							if s.left == 0 {
								finishPlaced(t, s)
								streams[i] = nil
							} else if _, err := s.in.NextBatch(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
						synctest.Wait()
						if pass++; pass%64 == 0 {
							checkCounts(t, p, open/lanes)
						}
					}
					for _, s := range streams {
						if s != nil {
							_ = s.in.Close()
						}
					}
					var sum, most float64
					for _, l := range p.recv.Stats().Lanes {
						sum += float64(l.BytesIn)
						most = max(most, float64(l.BytesIn))
					}
					ratio := most / (sum / lanes)
					t.Logf("the busiest lane carries %.4f times the mean of %.0f KB", ratio, sum/lanes/1000)
					if ratio > 1.05 {
						t.Errorf("the busiest lane carries %.4f times the mean", ratio)
					}
				})
			}
		}
	}
}

// TestBurstIsPlacedEvenly: streams that are minted at once, before any of them has brought a byte, are as many on
// each lane, on a fresh link and on one whose lanes have carried streams of the same kind.
func TestBurstIsPlacedEvenly(t *testing.T) {
	const lanes = 8
	inFakeTime(t, "", func(t *testing.T) {
		p := newPair(t, pairConfig{recv: Config{Lanes: lanes, GapMax: -1}})
		for _, streams := range []int{16, 64, 256, 16} {
			open := make([]*placed, streams)
			for i := range open {
				s := &placed{}
				s.in, s.out = p.open(t)
				open[i] = s
			}
			for i, l := range p.recv.Stats().Lanes {
				if l.Streams != int64(streams/lanes) {
					t.Errorf("lane %d has %d of %d streams", i, l.Streams, streams)
				}
			}
			for _, s := range open {
				if err := s.out.Put(t.Context(), make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				finishPlaced(t, s)
			}
			synctest.Wait()
		}
	})
}

// checkCounts: bytes are no reason to give a lane many more streams than the others have.
func checkCounts(t *testing.T, p *pair, mean int) {
	t.Helper()
	for _, l := range p.recv.Stats().Lanes {
		if most := mean + mean/placementSlack + 1; l.Streams > int64(most) {
			t.Fatalf("a lane has %d streams, the mean is %d", l.Streams, mean)
		}
	}
}

func finishPlaced(t *testing.T, s *placed) {
	t.Helper()
	if err := s.out.Complete(nil); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.in.NextBatch(t.Context()); err != nil {
			break
		}
	}
	_ = s.in.Close()
}
