package mock

import (
	"bytes"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
)

// cutAtStop finds the first stop string in the text of a response of n tokens: how many whole tokens stand before it,
// and the part before it of the token in which it begins. The text is known beforehand, so nothing has to be held back
// while tokens are sent.
func cutAtStop(g tokentext.Gen, n int, stops []string) (whole int, tail string, found bool) {
	longest := 0
	for _, s := range stops {
		longest = max(longest, len(s))
	}
	const block = 256 // tokens looked at together
	var (
		text  []byte
		start []int // where in text the tokens begin
		first int   // index of the first token in text
	)
	for i := 0; i < n; {
		for end := min(i+block, n); i < end; i++ {
			start = append(start, len(text))
			text = g.Append(text, i)
		}
		at := -1
		for _, s := range stops {
			if k := bytes.Index(text, []byte(s)); k >= 0 && (at < 0 || k < at) {
				at = k
			}
		}
		// A longer stop string that begins earlier may still be cut off by the end of the block; only when more text
		// follows can it show.
		if at >= 0 && (i == n || at <= len(text)-longest) {
			k := len(start) - 1
			for start[k] > at {
				k--
			}
			return first + k, string(text[start[k]:at]), true
		}
		// Keep the tokens in which a stop string may have begun.
		keep := 0
		for keep < len(start) && start[keep] < len(text)-longest {
			keep++
		}
		keep = max(keep-1, 0)
		cut := start[keep]
		text = append(text[:0], text[cut:]...)
		start = append(start[:0], start[keep:]...)
		for k := range start {
			start[k] -= cut
		}
		first += keep
	}
	return 0, "", false
}
