package analysis

import (
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// TestBlocks holds the order of the runs to whether they took turns.
func TestBlocks(t *testing.T) {
	for order, c := range map[string]struct {
		blocks int
		ok     bool
	}{
		"AB": {2, true}, "AAB": {2, false}, "AABB": {2, false}, "ABAB": {4, true}, "ABBA": {3, true},
		"ABABABABAB": {10, true}, "ABBAABBAAB": {6, true},
		"AAAAABBBBB": {2, false}, "BBBBBAAAAA": {2, false}, "AABBBBBAAA": {3, false}, "AAABBBAABB": {4, false},
		"AABBAABBAB": {6, true}, "ABBBBB": {2, false},
		"BBABB": {3, true},
	} {
		var k Bucket
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		for i, side := range order {
			r := &Run{Started: at.Add(time.Duration(i) * time.Minute)}
			if side == 'A' {
				k.A = append(k.A, r)
			} else {
				k.B = append(k.B, r)
			}
		}
		k.Blocks = blocks(k.A, k.B)
		if k.Blocks != c.blocks || k.interleaved() != c.ok {
			t.Errorf("%s: %d blocks, interleaved %t", order, k.Blocks, k.interleaved())
		}
	}
}

// TestDriftIsMarked has a machine that gets slower all the time, and one that is slow for a while. Sides of the same
// thing that ran in blocks are apart, which the rule cannot see and the verdict says; sides that took turns are not
// apart at all.
func TestDriftIsMarked(t *testing.T) {
	drifts := map[string]func(i int) time.Duration{
		"slower and slower": func(i int) time.Duration { return 20*ms + time.Duration(i)*ms },
		"slow for a while": func(i int) time.Duration {
			return 20*ms + map[bool]time.Duration{true: 5 * ms}[i >= 2 &&
				i < 7]
		},
	}
	for name, itl := range drifts {
		for order, apart := range map[string]bool{
			"ABABABABAB": false, "ABBAABBAAB": false, "AAAAABBBBB": name == "slower and slower",
			"AABBBBBAAA": name == "slow for a while",
		} {
			t.Run(name+" "+order, func(t *testing.T) {
				dir := t.TempDir()
				var a, b []string
				at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				for i, s := range order {
					run := dir + "/" + string(s) + string(rune('0'+i))
					began := report.Stamp(at.Add(time.Duration(i) * time.Minute))
					spec := runtest.Spec{ID: run, Seed: uint64(i), ITL: itl(i),
						Run: func(r *report.Run) { r.StartedAt = began }}
					if err := runtest.Write(run, spec); err != nil {
						t.Fatal(err)
					}
					if s == 'A' {
						a = append(a, run)
					} else {
						b = append(b, run)
					}
				}
				c, out := mustCompare(t, a, b, Options{})
				r := metricOf(t, c, "ITL p50")
				if r.Resolved != apart || r.Blocky != strings.Contains(out, "Interleave them.") {
					t.Errorf("resolved %t, blocky %t\n%s", r.Resolved, r.Blocky, out)
				}
				if r.Resolved && !strings.Contains(r.verdict(), "(NOT INTERLEAVED)") {
					t.Errorf("the verdict does not say it: %s", r.verdict())
				}
			})
		}
	}
}
