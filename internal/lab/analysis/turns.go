package analysis

import (
	"cmp"
	"slices"
)

// blocks counts into how many blocks of one side the runs fall, in the order of their starts: 2 for A A B B, 4 for A B
// A B, 3 for A B B A.
func blocks(a, b []*Run) int {
	type start struct {
		at   int64
		side int
	}
	var all []start
	for side, runs := range [][]*Run{a, b} {
		for _, r := range runs {
			all = append(all, start{r.Started.UnixNano(), side})
		}
	}
	slices.SortFunc(all, func(x, y start) int { return cmp.Compare(x.at, y.at) })
	n := 0
	for i := range all {
		if i == 0 || all[i].side != all[i-1].side {
			n++
		}
	}
	return n
}

// interleaved tells whether the sides took turns: in as many blocks as the smaller side has runs, and more than two.
// With fewer, a machine that is slower for a while can make one side's runs the slower ones. (A B A B... has twice as
// many blocks as runs a side, A B B A A B B A... one more.) Two runs in all have no order that could be better.
func (k Bucket) interleaved() bool {
	n, m := len(k.A), len(k.B)
	return n+m <= 2 || k.Blocks > 2 && k.Blocks >= min(n, m)
}
