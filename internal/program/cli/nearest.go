package cli

import "strings"

func didYouMean(s string) string {
	if s == "" {
		return ""
	}
	return " (did you mean " + s + "?)"
}

// nearestFlag is the flag that an unknown name was most likely meant to be, with its dashes.
func (a *App) nearestFlag(name string) string {
	var names []string
	for _, g := range a.groups {
		for _, o := range g.flags {
			names = append(names, o.name)
		}
	}
	if n := nearest(name, names); n != "" {
		return "--" + n
	}
	return ""
}

// nearest is the word with the fewest edits between it and s, "" when all are too far off to be a misspelling.
func nearest(s string, words []string) string {
	best, bestCost := "", max(2, len(s)/3)+1
	lower := strings.ToLower(s)
	for _, w := range words {
		if c := edits(lower, strings.ToLower(w)); c < bestCost {
			best, bestCost = w, c
		}
	}
	if best != "" {
		return best
	}
	// "--udp-recv" for --udp-recv-buffer: a beginning that only one word has.
	for _, w := range words {
		if len(s) >= 3 && strings.HasPrefix(strings.ToLower(w), lower) {
			if best != "" {
				return ""
			}
			best = w
		}
	}
	return best
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
