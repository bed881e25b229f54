package mux

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var deathsFor = flag.Duration("deaths.for", 0,
	"how long TestStreamsSurviveDeathsOfLanes kills; 0 = until it has seen enough")

// TestStreamsSurviveDeathsOfLanes: a lane dies every 50 ms, on either side, on every plane; every record arrives once
// and in order, every end is complete, and the application does nothing for it.
func TestStreamsSurviveDeathsOfLanes(t *testing.T) {
	const enough = 5 // deaths
	streams, records, pace := 500, 256, 50*time.Millisecond
	if underRace { // a handshake takes longer than 50 ms then
		streams, records, pace = 100, 64, 250*time.Millisecond
	}
	for i := range 2 * len(allPlanes) {
		plane, lanes := allPlanes[i/2], []int{1, 4}[i%2]
		t.Run(fmt.Sprintf("plane=%s/lanes=%d", plane, lanes), func(t *testing.T) {
			t.Parallel()
			p, front, work := newPlanePair(t, plane, pairConfig{recv: Config{Lanes: lanes}})
			stop := make(chan struct{})
			var killer sync.WaitGroup
			var kills atomic.Int64
			killer.Go(func() {
				r := rand.New(rand.NewPCG(1, 2))
				every := time.NewTicker(pace)
				defer every.Stop()
				for {
					select {
					case <-stop:
						return
					case <-every.C:
					}
					side := front
					if r.IntN(2) == 0 {
						side = work
					}
					if conns := side.open(); len(conns) > 0 {
						conns[r.IntN(len(conns))].kill()
						kills.Add(1)
					}
				}
			})
			start, total := time.Now(), 0
			for total == 0 || kills.Load() < enough || takeovers(p.recv) == 0 || time.Since(start) < *deathsFor {
				exchange(t, p, streams, records, 300)
				total += streams
			}
			took := time.Since(start)
			close(stop)
			killer.Wait()
			p.settled(t)
			st := p.recv.Stats()
			t.Logf("%d streams in %v, %d lanes killed, %d takeovers, deaths %v, dropped %v", total, took,
				kills.Load(), takeovers(p.recv), st.LaneDeaths, st.RecordsDropped)
			t.Logf("without a connection: %s; sent again %d bytes of %d", withoutConnection(st),
				p.send.Stats().ResentBytes,
				p.send.Stats().BytesOut)
			if n := st.StreamsEnded["complete"]; n != uint64(total) {
				t.Errorf("%d of %d streams ended complete: %v", n, total, st.StreamsEnded)
			}
			if n := p.send.Stats().StreamsEnded["complete"]; n != uint64(total) {
				t.Errorf("%d of %d streams ended complete at the worker", n, total)
			}
		})
	}
}

// TestStreamsSurviveSilence: a lane falls silent, which nobody is told of. PINGs find it, every record arrives once and
// in order, and the lane is back within seconds; the log says how many. A lane goes silent every 10 s of -deaths.for,
// else once.
func TestStreamsSurviveSilence(t *testing.T) {
	for i := range 2 * len(allPlanes) {
		plane, lanes := allPlanes[i/2], []int{1, 4}[i%2]
		t.Run(fmt.Sprintf("plane=%s/lanes=%d", plane, lanes), func(t *testing.T) {
			t.Parallel()
			p, front, _ := newPlanePair(t, plane, pairConfig{recv: Config{Lanes: lanes}})
			stop, seen := make(chan struct{}), make(chan struct{})
			var took []time.Duration
			var load sync.WaitGroup
			total := 0
			load.Go(func() {
				for {
					exchange(t, p, 100, 256, 300)
					total += 100
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
			go func() {
				defer close(seen)
				r := rand.New(rand.NewPCG(1, 3))
				for start := time.Now(); ; {
					conns := front.open()
					before := takeovers(p.recv)
					begun := time.Now()
					conns[r.IntN(len(conns))].mute()
					for takeovers(p.recv) == before && time.Since(begun) < time.Minute {
						time.Sleep(5 * time.Millisecond)
					}
					took = append(took, time.Since(begun))
					if time.Since(start)+10*time.Second > *deathsFor {
						return
					}
					time.Sleep(10*time.Second - time.Since(begun))
				}
			}()
			<-seen
			close(stop)
			load.Wait()
			p.settled(t)
			slices.Sort(took)
			t.Logf("%d streams, %d silences, each over after %v to %v; sent again %d bytes of %d", total, len(took),
				took[0],
				took[len(took)-1], p.send.Stats().ResentBytes, p.send.Stats().BytesOut)
			if last := took[len(took)-1]; last > 35*time.Second {
				t.Errorf("a silence was over after %v", last)
			}
			if n := p.recv.Stats().StreamsEnded["complete"]; n != uint64(total) {
				t.Errorf("%d of %d streams ended complete: %v", n, total, p.recv.Stats().StreamsEnded)
			}
		})
	}
}

// withoutConnection says how many takeovers took how long.
func withoutConnection(st Stats) (text string) {
	var sum [len(Takeovers{}.Buckets)]uint64
	for _, t := range st.LaneTakeovers {
		for i, n := range t.Buckets {
			sum[i] += n
		}
	}
	bounds := TakeoverBuckets()
	for i, n := range sum {
		if i < len(bounds) {
			text += fmt.Sprintf("%d within %v, ", n, bounds[i])
		} else {
			text += fmt.Sprintf("%d longer", n)
		}
	}
	return text
}

// takeovers is how often a frontend's lanes got another connection.
func takeovers(r *FrontendNode) (n uint64) {
	for _, t := range r.Stats().LaneTakeovers {
		n += t.Count
	}
	return n
}
