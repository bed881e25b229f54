package main

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
)

// TestArmPick: a request that was refused is given to another process where there is one, and to the others of the same
// process after that.
func TestArmPick(t *testing.T) {
	for _, router := range []responseplane.Router{responseplane.RouterLeastLoaded, responseplane.RouterRoundRobin,
		responseplane.RouterRandom} {
		t.Run(string(router), func(t *testing.T) {
			table := newArmTable(router, nil, slog.New(slog.DiscardHandler))
			for node, engines := range map[string]int{"many": 8, "one": 1} {
				n := &armNode{}
				n.up.Store(true)
				table.nodes[node] = n
				for i := range engines {
					table.byModel["m"] = append(table.byModel["m"],
						&armWorker{rec: discovery.Worker{ID: fmt.Sprint(node, i), Node: discovery.Node{ID: node}}})
				}
			}
			many := slices.IndexFunc(table.byModel["m"], func(w *armWorker) bool { return w.rec.Node.ID == "many" })
			for range 50 {
				tried := []*armWorker{table.byModel["m"][many]}
				for i := range 8 {
					w, err := table.pick("m", tried)
					if err != nil || slices.Contains(tried, w) || (w.rec.Node.ID == "one") != (i == 0) {
						t.Fatalf("attempt %d is at %+v, %v", i+2, w, err)
					}
					tried = append(tried, w)
				}
				if w, err := table.pick("m", tried); err == nil {
					t.Fatalf("all were tried, and now %+v", w)
				}
			}
		})
	}
}
