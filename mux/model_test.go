package mux

import (
	"strings"
	"testing"
)

// TestModel searches everything that can happen to one slot index that is used three times over two lanes whose records
// may take any time: requests come late, twice or never, the frontend gives up at any time, and somebody forges terms.
// With the rules of docs/wire.md 6 no record reaches another request, no answer looks complete that is not, no credit
// counts for another stream, an honest frontend never breaks the rule of KILL, and every use comes to an end. With any
// one rule left out something of that breaks: so the model can see what the rules are for.
func TestModel(t *testing.T) {
	honest, forger := mFaults{kills: 2, loses: 1, doubles: 1}, mFaults{kills: 1, loses: 1, forges: 1}
	for _, c := range []struct {
		name   string
		rules  mRules
		faults mFaults
		breaks string // in what is found; "": nothing is
	}{
		{"the rules", mRules{}, honest, ""},
		{"the rules, with a forger", mRules{}, forger, ""},
		{"CONSUMED names no number", mRules{consumedBySlot: true}, honest, "CONSUMED"},
		{"a slot is free at KILL", mRules{freeAtKill: true}, honest, "while a lower one is open"},
		{"END overtakes DATA", mRules{endFirst: true}, honest, "a record missing"},
		{"a KILL before the request is not answered", mRules{earlyKillIgnored: true}, honest, "stuck"},
		{"a KILL before the request is forgotten", mRules{earlyKillForgotten: true}, honest, "after its END"},
		{"the key is not checked by the worker", mRules{noKeyAtWorker: true}, forger, "stuck"},
		{"nor by the frontend", mRules{noKeyAtWorker: true, noKeyAtFront: true}, forger, "delivered to"},
		{"a request of a lower number is run", mRules{lowerRuns: true}, honest, "after its END"},
	} {
		t.Run(c.name, func(t *testing.T) {
			states, wrong := mSearch(c.rules, c.faults)
			t.Logf("%d states", states)
			switch {
			case c.breaks == "" && wrong != nil:
				t.Errorf("%s", strings.Join(wrong, "\n"))
			case c.breaks != "" && wrong == nil:
				t.Error("nothing breaks without the rule: the model is blind, or the rule is of no use")
			case c.breaks != "" && !strings.Contains(wrong[len(wrong)-1], c.breaks):
				t.Errorf("expected %q to break, found:\n%s", c.breaks, strings.Join(wrong, "\n"))
			default:
				t.Logf("%s", strings.Join(wrong, "\n"))
			}
		})
	}
}

// mSearch visits every state, breadth first, and returns the shortest way to one where something is wrong.
func mSearch(rules mRules, faults mFaults) (states int, wrong []string) {
	type origin struct {
		from mState
		step string
	}
	begin := mState{faults: faults}
	seen := map[mState]origin{begin: {}}
	way := func(s mState, last string) []string {
		steps := []string{last}
		for s != begin {
			steps = append([]string{seen[s].step}, steps...)
			s = seen[s].from
		}
		return steps
	}
	var out []mStep
	for queue := []mState{begin}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		out = rules.steps(s, out[:0])
		for _, step := range out {
			if step.wrong != "" {
				return len(seen), way(s, step.name+": "+step.wrong)
			}
			if _, ok := seen[step.to]; !ok {
				seen[step.to] = origin{s, step.name}
				queue = append(queue, step.to)
			}
		}
		if len(out) == 0 && !s.over() {
			return len(seen), way(s, "stuck")
		}
	}
	return len(seen), nil
}
