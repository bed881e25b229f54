package mux

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var modelDeep = flag.Bool("model", false, "search the whole model: minutes and gigabytes instead of seconds")

// mFinding is a broken rule and the shortest way to it.
type mFinding struct {
	wrong string
	trace []string
}

// search visits every state that the rules allow, nearest first, and does not go on from one that is wrong. It stops at the
// first finding, or at the first of the kind that is wanted.
func (q mRules) search(wanted string) (states int, ends map[uint8]int, found *mFinding) {
	type from struct {
		state int32
		step  string
	}
	begin := q.begin()
	seen := map[mState]struct{}{begin: {}}
	queue := []mState{begin}
	var how []from // only mutants stop early, so the way is kept for everyone: one string header a state
	how = append(how, from{-1, ""})
	way := func(i int32, last string) (trace []string) {
		for trace = []string{last}; i > 0; i = how[i].state {
			trace = append([]string{how[i].step}, trace...)
		}
		return trace
	}
	report := func(wrong string, at int, last string) bool {
		if found == nil || wrong == wanted {
			found = &mFinding{wrong, way(int32(at), last)}
		}
		return wanted == "" || wrong == wanted
	}
	ends = make(map[uint8]int)
	var steps []mStep
	for at := 0; at < len(queue); at++ {
		s := queue[at]
		steps = q.steps(s, steps[:0])
		moves := false
		for _, n := range steps {
			moves = moves || !n.fault
			if n.wrong != "" {
				if report(n.wrong, at, n.name) {
					return len(queue), ends, found
				}
				continue
			}
			if _, ok := seen[n.to]; !ok {
				seen[n.to] = struct{}{}
				queue = append(queue, n.to)
				how = append(how, from{int32(at), n.name})
			}
		}
		if s.done() {
			ends[s.end]++
		} else if !moves && report(s.stuck(), at, "and there it stays") {
			return len(queue), ends, found
		}
	}
	return len(queue), ends, found
}

// TestModel searches the protocol as docs/wire.md states it. No rule may break in any interleaving.
func TestModel(t *testing.T) {
	if underRace {
		t.Skip("one goroutine: nothing for the race detector")
	}
	cases := map[string]mRules{
		"one death, KILL":                     {cuts: 1, kills: 1, generationWrapped: true},
		"lost and doubled request, KILL":      {kills: 1, drops: 1, twice: 1, generationWrapped: true},
		"one death, lost and doubled request": {cuts: 1, drops: 1, twice: 1, generationWrapped: true},
		"one death, KILL, the end of a hold":  {cuts: 1, kills: 1, holds: 1, generationWrapped: true},
		"two deaths":                          {cuts: 2, generationWrapped: true},
	}
	if *modelDeep {
		cases["one death and everything else"] = mRules{cuts: 1, kills: 1, drops: 1, twice: 1, holds: 1, generationWrapped: true}
		cases["two deaths, KILL"] = mRules{cuts: 2, kills: 1, generationWrapped: true}
		cases["two deaths and everything else"] = mRules{cuts: 2, kills: 1, drops: 1, twice: 1, holds: 1, generationWrapped: true}
	}
	for name, rules := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			states, ends, found := rules.search("")
			t.Logf("%d states in %v, ends: %d complete, %d killed, %d lost", states, time.Since(start), ends[mComplete], ends[mKilled], ends[mLost])
			if found != nil {
				t.Fatalf("%s:\n  %s", found.wrong, strings.Join(found.trace, "\n  "))
			}
			if ends[mComplete] == 0 {
				t.Error("no run came to a complete end: the model is broken")
			}
		})
	}
}

// TestModelFindsMissingRules leaves out one rule at a time; each must be missed.
func TestModelFindsMissingRules(t *testing.T) {
	if underRace {
		t.Skip("one goroutine: nothing for the race detector")
	}
	for _, m := range []struct {
		name  string
		rules mRules
		wrong string
	}{
		{"RESUME names consumed", mRules{resumeConsumed: true, cuts: 1}, "a record twice, or a gap"},
		{"late bytes of the old lane are taken", mRules{lateBytes: true, cuts: 1}, "a record twice, or a gap"},
		{"no move counter", mRules{noMove: true, cuts: 2}, "nothing can go on"},
		{"CONSUMED is not repeated", mRules{noConsumedAgain: true, cuts: 1}, "nothing can go on"},
		{"KILL is not repeated", mRules{noKillAgain: true, cuts: 1, kills: 1}, "a slot is closing for ever"},
		{"END is not kept", mRules{endNotKept: true, cuts: 1}, "lost, though worker and link are there"},
		{"a slot is free at KILL", mRules{freeAtKill: true, generationWrapped: true, kills: 1}, "an open stream is replaced"},
		{"a slot is free at KILL, and OPEN has no key", mRules{freeAtKill: true, noKey: true, generationWrapped: true, kills: 1}, "a record of another request is delivered"},
		{"streams without records are not resumed", mRules{noResumeMinted: true, cuts: 1}, "nothing can go on"},
		{"RESUME before the request is answered at once", mRules{noEarly: true, cuts: 1}, "lost, though worker and link are there"},
		{"CONSUMED(end) is not made good", mRules{noEndAgain: true, cuts: 1}, "the worker keeps a stream for ever"},
		{"CONSUMED of an old lane counts", mRules{consumedAnyLane: true, cuts: 1}, "CONSUMED goes back, or beyond what was sent"},
		{"END answers KILL on the stream's lane", mRules{answerOnOldLane: true, cuts: 1, kills: 1}, "a slot is closing for ever"},
	} {
		t.Run(m.name, func(t *testing.T) {
			states, _, found := m.rules.search(m.wrong)
			if found == nil {
				t.Fatalf("%d states and nothing wrong: the model does not see that this rule is missing", states)
			}
			t.Logf("%s, after %d states, in %d steps:\n  %s", found.wrong, states, len(found.trace), strings.Join(found.trace, "\n  "))
			if found.wrong != m.wrong {
				t.Errorf("found %q, expected %q", found.wrong, m.wrong)
			}
		})
	}
}
