package frontend

import (
	"fmt"
	"runtime"
	"testing"
)

// TestStacksOfOpenResponses holds that a response that waits for its next token has small stacks: the collector halves
// one of which less than a quarter is in use, so frames that are too large below the wait cost each of 8,192 open
// responses 8 KiB.
func TestStacksOfOpenResponses(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's frames are larger")
	}
	// 8 KiB for the request, 2 to 4 for net/http's reader that waits for the client to leave
	const n, most = 300, 14 << 10
	streams := make(map[string]*sinkPlay, n)
	for i := range n {
		streams[fmt.Sprint("r", i)] = started()
	}
	b := byID(t, nil, streams)
	before := stacks()
	for id := range streams {
		b.dial(id)
	}
	for _, s := range streams {
		s.untilParked(t, b)
	}
	if each := (stacks() - before) / n; each > most {
		t.Errorf("%d B of stack for each open response, at most %d are expected", each, most)
	} else {
		t.Logf("%d B of stack for each open response", each)
	}
}

// stacks is the memory in stacks once the collector has shrunk those that can be.
func stacks() int {
	for range 3 { // one halves
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}
