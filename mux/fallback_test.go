package mux

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport/memory"
)

// Two planes of memory networks; a frontend that has both prefers fast.
const (
	planeFast = "fast"
	planeSafe = "safe"
)

// twoPlanes is a frontend and a worker that share two planes.
type twoPlanes struct {
	*pair
	nets map[string]*memory.Network
	at   map[string][]string // the worker's endpoints
}

func newTwoPlanes(t *testing.T, cfg Config) *twoPlanes {
	t.Helper()
	p := &twoPlanes{pair: &pair{id: workerID}, at: make(map[string][]string), nets: map[string]*memory.Network{
		planeFast: memory.NewNetwork(memory.Config{Plane: planeFast}),
		planeSafe: memory.NewNetwork(memory.Config{Plane: planeSafe})}}
	var err error
	if p.send, err = NewWorkerNode(Config{ID: workerID}); err != nil {
		t.Fatal(err)
	}
	peer := Peer{ID: workerID}
	for _, name := range []string{planeFast, planeSafe} {
		work := p.nets[name].Transport(workerID)
		ln, err := work.Listen(t.Context(), "worker:0", 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range ln.Endpoints() {
			p.at[name] = append(p.at[name], a.String())
		}
		peer.Planes = append(peer.Planes, PeerPlane{Plane: name, Endpoints: p.at[name]})
		if err := p.send.Serve(ln); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = work.Close() })
	}
	cfg.ID = frontID
	front := []*memory.Network{p.nets[planeFast], p.nets[planeSafe]}
	fast, safe := front[0].Transport(frontID), front[1].Transport(frontID)
	if p.recv, err = NewFrontendNode(cfg, fast, safe); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.close(t)
		_, _ = fast.Close(), safe.Close()
	})
	if err := p.recv.AddPeer(peer); err != nil {
		t.Fatal(err)
	}
	if err := p.recv.Await(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	return p
}

// deny has a plane fail as a network would, and allow ends that.
func (p *twoPlanes) deny(plane string, blocked bool) {
	n := p.nets[plane]
	for _, a := range p.at[plane] {
		if blocked {
			n.Silence(a)
		} else {
			n.Refuse(a, syscall.ECONNREFUSED)
		}
	}
	if blocked {
		n.Stall()
	} else {
		n.Cut(nil)
	}
}

func (p *twoPlanes) allow(plane string) {
	for _, a := range p.at[plane] {
		p.nets[plane].Allow(a)
	}
	p.nets[plane].Release()
}

func (p *twoPlanes) lanesOn(plane string) (n int) {
	for _, l := range p.recv.Stats().Lanes {
		if l.Up && l.Plane == plane {
			n++
		}
	}
	return n
}

// Streams know nothing of planes: they go on while their link falls back, while it goes home, and while that happens
// to other streams, and lose nothing. It is told which plane carried what.
func TestStreamsOutliveTheirPlane(t *testing.T) {
	for name, blocked := range map[string]bool{"blocked": true, "refused": false} {
		inFakeTime(t, name, func(t *testing.T) {
			const lanes = 2
			p := newTwoPlanes(t, Config{Lanes: lanes})
			waitFor(t, "all lanes", func() bool { return p.lanesOn(planeFast) == lanes })
			old, oldOut := p.open(t) // lives through all of it
			carried := 0
			stop := make(chan struct{})
			var load sync.WaitGroup
			load.Go(func() { // and others come and go
				r := rand.New(rand.NewPCG(5, 6))
				for {
					select {
					case <-stop:
						return
					default:
					}
					exchange(t, p.pair, 5, 1+r.IntN(20), 200)
					time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
				}
			})
			for round := range 2 {
				for ; carried < 10*(3*round+1); carried++ {
					carry(t, old, oldOut, carried)
					time.Sleep(10 * time.Millisecond)
				}
				begun := time.Now()
				p.deny(planeFast, blocked)
				carry(t, old, oldOut, carried)
				carried++
				most := time.Second
				if blocked { // the silence of 3 s must be noticed, and the other plane tried
					most = 5 * time.Second
				}
				took(t, "goes on", begun, 0, most)
				waitFor(t, "all lanes on the other plane", func() bool { return p.lanesOn(planeSafe) == lanes })
				for range 10 {
					carry(t, old, oldOut, carried)
					carried++
				}
				p.allow(planeFast)
				for home := 0; p.lanesOn(planeFast) < lanes; home++ { // a minute or two, and never without a record
					if home > 600 {
						t.Fatal("the link does not go home")
					}
					carry(t, old, oldOut, carried)
					carried++
					time.Sleep(500 * time.Millisecond)
				}
				if plane, _ := old.Lane(); plane != planeFast {
					t.Errorf("the old stream says that it is on %s", plane)
				}
			}
			close(stop)
			load.Wait()
			finish(t, old, oldOut)
			p.settled(t)
			st := p.recv.Stats()
			if st.StreamsEnded["complete"] != st.StreamsOpened || st.Links != 1 {
				t.Errorf("%d streams on %d links, ends %v", st.StreamsOpened, st.Links, st.StreamsEnded)
			}
			if f := st.Fallbacks; len(f) != 1 || f[0].Links < 1 || f[0].From != planeFast || f[0].To != planeSafe {
				t.Errorf("fallbacks %+v", st.Fallbacks)
			}
			if n := takeovers(p.recv); n != 4*lanes {
				t.Errorf("%d takeovers, expected %d: %v", n, 4*lanes, st.LaneTakeovers)
			}
			fast, safe := st.Planes[planeFast], st.Planes[planeSafe]
			if fast.RecordsIn == 0 || safe.RecordsIn == 0 || fast.RecordsIn+safe.RecordsIn < st.RecordsIn {
				t.Errorf("planes %+v, %d records", st.Planes, st.RecordsIn)
			}
		})
	}
}
