package mux

import (
	"encoding/json"
	"testing"
)

// Programs show snapshots as JSON.
func TestStatsMarshal(t *testing.T) {
	p := newPair(t, pairConfig{recv: Config{Lanes: 2}})
	in, out := p.open(t)
	carry(t, in, out, 0)
	finish(t, in, out)
	p.settled(t)
	for who, st := range map[string]Stats{"frontend": p.recv.Stats(), "worker": p.send.Stats()} {
		b, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		var again Stats
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if again.StreamsEnded["complete"] != 1 || len(again.Lanes) != 2 || again.RecordsIn+again.RecordsOut != 1 {
			t.Errorf("%s: %s", who, b)
		}
	}
}
