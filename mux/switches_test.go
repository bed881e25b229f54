package mux

import (
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// TestSwitchesOff runs the same exchanges with each clever part off, and with all: streams of any size, records in
// fragments, a window that is full, and lanes that die. What a switch turns off must not show in the counters.
func TestSwitchesOff(t *testing.T) {
	for _, s := range []struct {
		name  string
		set   func(*Config)
		check func(t *testing.T, front, work Stats)
	}{
		{"all on", func(*Config) {}, nil},
		// TestFirstRecordOvertakesTheBacklog sees that it is off
		{"urgent", func(c *Config) { c.NoUrgent = true }, nil},
		{"gap", func(c *Config) { c.GapMax = -1 }, func(t *testing.T, front, work Stats) {
			if n := front.Writes["gap"] + work.Writes["gap"]; n != 0 {
				t.Errorf("%d writes waited for the gap", n)
			}
		}},
		{"inline write", func(c *Config) { c.NoInlineWrite = true }, nil},
		{"active ping", func(c *Config) { c.ActivePing = -1 }, nil},
		{"offload", func(*Config) {}, nil}, // of UDP: GRO and GSO
		{"all", func(c *Config) { c.NoUrgent, c.GapMax, c.NoInlineWrite, c.ActivePing = true, -1, true, -1 }, nil},
	} {
		noOffload := s.name == "offload" || s.name == "all"
		for _, plane := range []string{transport.PlaneMemory, transport.PlaneTCP, transport.PlaneQUIC} {
			if s.name == "offload" && plane != transport.PlaneQUIC {
				continue
			}
			t.Run("off="+s.name+"/plane="+plane, func(t *testing.T) {
				cfg := pairConfig{recv: Config{Lanes: 2, Window: 16 << 10}, mem: memory.Config{TryWrite: true}}
				s.set(&cfg.recv)
				s.set(&cfg.send)
				cfg.quic.DisableGRO, cfg.quic.DisableGSO = noOffload, noOffload
				p, front, work := newPlanePair(t, plane, cfg)
				tries := &tryCount{}
				see := tries.wrote
				work.onTry.Store(&see)
				exchange(t, p, 50, 64, 1000)
				exchange(t, p, 8, 8, 40<<10)
				p.settled(t)
				if cfg.send.NoInlineWrite != (tries.n() == 0) && plane != transport.PlaneQUIC {
					t.Errorf("inline writes off: %t, and there were %d", cfg.send.NoInlineWrite, tries.n())
				}
				if s.check != nil {
					s.check(t, p.recv.Stats(), p.send.Stats())
				}
				for _, k := range append(front.Sockets(), work.Sockets()...) {
					if noOffload && (k.GRO || k.GSO) {
						t.Errorf("offload is off, and on at a socket: %+v", k)
					}
				}
				for i, side := range []*tap{front, work, front} { // streams that go on over deaths of lanes
					var death sync.WaitGroup
					death.Go(func() {
						if lanes := side.open(); len(lanes) > 0 {
							lanes[i%len(lanes)].kill()
						}
					})
					exchange(t, p, 20, 64, 1000)
					death.Wait()
				}
				if st := p.recv.Stats(); st.StreamsEnded["complete"] != st.StreamsOpened {
					t.Errorf("%d streams, ends %v", st.StreamsOpened, st.StreamsEnded)
				}
			})
		}
	}
}

// TestFailoverOff: with a negative ResumeTimeout the death of a lane ends its streams as lost, once, and those of
// other lanes go on.
func TestFailoverOff(t *testing.T) {
	for _, plane := range []string{transport.PlaneMemory, transport.PlaneTCP, transport.PlaneQUIC} {
		t.Run("plane="+plane, func(t *testing.T) {
			p, front, _ := newPlanePair(t, plane, pairConfig{recv: Config{Lanes: 2, ResumeTimeout: -1}})
			type both struct {
				in  *InStream
				out *OutStream
			}
			on := map[int][]both{}
			for range 20 {
				in, out := p.open(t)
				if err := out.TrySend([]byte("first")); err != nil {
					t.Fatal(err)
				}
				if _, err := in.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				_, lane := in.Lane()
				on[lane] = append(on[lane], both{in, out})
			}
			if len(on[0]) == 0 || len(on[1]) == 0 {
				t.Fatalf("the lanes have %d and %d streams", len(on[0]), len(on[1]))
			}
			for _, c := range front.open() {
				if c.Info().Lane == 0 {
					c.kill()
				}
			}
			for _, s := range on[0] {
				_, err := s.in.Next(t.Context())
				if end, wrong := endType(err); wrong != nil || end != EndLost {
					t.Errorf("a stream of the dead lane: %v", err)
				}
				<-s.out.Done() // KILL on the other lane reaches the engine
				_ = s.in.Close()
			}
			for _, s := range on[1] {
				if err := s.out.TrySend([]byte("second")); err != nil {
					t.Error(err)
				}
				if _, err := s.in.Next(t.Context()); err != nil {
					t.Errorf("a stream of the other lane: %v", err)
				}
				_ = s.out.Complete(nil)
				_ = s.in.Close()
			}
			p.settled(t)
		})
	}
}

// tryCount counts inline writes.
type tryCount struct {
	mu    sync.Mutex
	count int
}

func (c *tryCount) wrote([]byte) {
	c.mu.Lock()
	c.count++
	c.mu.Unlock()
}

func (c *tryCount) n() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}
