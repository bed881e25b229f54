package pipe

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// killing is a worker's handler whose streams can be killed, and a frontend's that notes what it hears.
type killing struct {
	node
	unwanted map[wire.Slot]bool // under the pipe's lock
	got      map[wire.Slot][]string
}

func (k *killing) Skips(s wire.Slot) bool { return k.unwanted[s] }

func (k *killing) Record(h wire.Header, body []byte) error {
	k.got[h.Slot] = append(k.got[h.Slot], fmt.Sprint(h.Kind, string(body)))
	return nil
}

// TestSkip kills streams at random times: what is unsent of them is not sent, but each END is, and all of the other
// streams.
func TestSkip(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, rigConfig{Config: Config{NoUrgent: seed%4 == 0, LogLimit: 16 << 20}})
			w := &killing{node: node{t: t}, unwanted: make(map[wire.Slot]bool)}
			f := &killing{node: node{t: t}, got: make(map[wire.Slot][]string)}
			g.worker().pipe.handler, g.front().pipe.handler = w, f
			p := g.worker().pipe
			r := rand.New(rand.NewPCG(seed, 9))
			longest := [...]int{300, 9000}[seed%3/2] // so that more waits than one write takes
			l := newLink(seed, 1<<(4+r.IntN(12)), [2]int{-1, -1})
			g.connect(l.ends(seed%2 == 0))
			said := make(map[wire.Slot][]string)
			var open, ended []wire.Slot
			number, appended := uint32(0), 0
			for range 600 {
				p.Lock()
				switch k := r.IntN(20); {
				case k < 3 || len(open) == 0:
					number++
					open = append(open, wire.MakeSlot(number, 0))
				case k == 3: // the stream ends, or was killed and then ends
					i := r.IntN(len(open))
					s := open[i]
					open = append(open[:i], open[i+1:]...)
					if r.IntN(2) == 0 {
						w.unwanted[s] = true
						p.Skip()
					}
					p.AppendEnd(Place(number%2), s, &wire.EndBody{Type: wire.EndKilled})
					ended = append(ended, s)
				case k == 4:
					p.Unlock()
					p.Flush(ByFlush)
					if r.IntN(2) == 0 {
						synctest.Wait()
					}
					p.Lock()
				case k == 5 && r.IntN(4) == 0:
					p.Unlock()
					l = newLink(seed, 1<<(4+r.IntN(12)), [2]int{-1, -1})
					g.connect(l.ends(seed%2 == 0))
					p.Lock()
				default:
					s := open[r.IntN(len(open))]
					body := fmt.Sprint(len(said[s]), "."+string(make([]byte, r.IntN(longest))))
					p.Append(Bulk, wire.Data, s, []byte(body))
					said[s] = append(said[s], fmt.Sprint(wire.Data, body))
					appended++
				}
				if wrong := p.broken(); wrong != "" {
					t.Fatal(wrong)
				}
				p.Unlock()
			}
			p.Flush(ByFlush)
			time.Sleep(time.Second)
			g.stop()
			heard := 0
			for s, all := range said {
				got, next := f.got[s], 0
				for _, r := range got {
					if r[:3] == "END" {
						continue
					}
					heard++
					for next < len(all) && all[next] != r {
						if next++; !w.unwanted[s] {
							t.Fatalf("stream %v is wanted and has lost a record", s)
						}
					}
					next++
				}
				if next > len(all) || next < len(all) && !w.unwanted[s] {
					t.Fatalf("stream %v said %d records, heard were %d", s, len(all), len(got))
				}
			}
			ends := make(map[wire.Slot]int)
			for _, s := range w.sealed {
				ends[s]++
			}
			for _, s := range ended {
				n := 0
				for _, r := range f.got[s] {
					if r[:3] == "END" {
						n++
					}
				}
				if n != 1 || ends[s] != 1 {
					t.Errorf("stream %v: %d ENDs were heard, Sealed told %d times", s, n, ends[s])
				}
			}
			if skipped := int(g.worker().stats.Skipped.Load()); heard+skipped != appended {
				t.Errorf("%d records were appended, %d heard and %d skipped", appended, heard, skipped)
			}
			g.worker().checkEmpty()
		})
	}
}

// TestSkipTheLast skips what the next record is put behind.
func TestSkipTheLast(t *testing.T) {
	g := newRig(t, rigConfig{})
	w := &killing{node: node{t: t}, unwanted: map[wire.Slot]bool{wire.MakeSlot(2, 0): true}}
	p := g.worker().pipe
	p.handler = w
	p.Lock()
	for i, all := range [][]uint32{{1, 2}, {2}, {2, 1, 2}} {
		for _, index := range all {
			p.Append(Bulk, wire.Data, wire.MakeSlot(index, 0), make([]byte, 100))
		}
		p.skip(&p.places[Bulk])
		if wrong := p.broken(); wrong != "" {
			t.Errorf("after %d: %s", i, wrong)
		}
	}
	if p.Unsent() != 2*108 {
		t.Errorf("%d bytes wait, expected two records", p.Unsent())
	}
	p.Unlock()
	g.worker().checkEmpty()
}

// TestSkipWhileOwnersEmit has a stream killed while the writer lets owners emit, without the lock: its END came to
// urgent, and what is unsent of it in bulk must not go behind that.
func TestSkipWhileOwnersEmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, rigConfig{})
		w := &killing{node: node{t: t}, unwanted: make(map[wire.Slot]bool)}
		f := &killing{node: node{t: t}, got: make(map[wire.Slot][]string)}
		p := g.worker().pipe
		p.handler, g.front().pipe.handler = w, f
		victim := wire.MakeSlot(1, 0)
		kill := &killer{func() {
			p.Lock()
			w.unwanted[victim] = true
			p.Skip()
			p.AppendEnd(Urgent, victim, &wire.EndBody{Type: wire.EndKilled})
			p.Unlock()
		}}
		p.Lock()
		p.Append(Bulk, wire.Data, victim, []byte("a record"))
		p.OweLocked(&Owed{Owner: kill}, Bulk)
		p.FlushLocked(ByFlush)
		g.connect(newLink(1, 1<<20, [2]int{-1, -1}).ends(true))
		time.Sleep(time.Second)
		g.stop()
		if got := f.got[victim]; len(got) != 1 || got[0][:3] != "END" {
			t.Errorf("the peer was told %q", got)
		}
		g.worker().checkEmpty()
	})
}

type killer struct{ do func() }

func (k *killer) Emit(*Pipe) bool {
	k.do()
	return false
}
