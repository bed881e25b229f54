package mux

import (
	"encoding/json"
	"testing"
)

// Programs show snapshots as JSON.
func TestStatsMarshal(t *testing.T) {
	p := newPair(t, pairConfig{})
	p.recv.stats.fellBack("quic", "tls", "timeout")
	p.recv.stats.fellBack("quic", "tls", "timeout")
	st := p.recv.Stats()
	if len(st.Fallbacks) != 1 || st.Fallbacks[0].Links != 2 {
		t.Errorf("fallbacks are %+v", st.Fallbacks)
	}
	for _, st := range []Stats{st, p.send.Stats()} {
		if _, err := json.Marshal(st); err != nil {
			t.Error(err)
		}
	}
}
