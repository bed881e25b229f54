package main

import "strings"

// otherFloor is the floor when the default one is not run: another bare connection, "" when there is none.
func otherFloor(arms []string) string {
	for _, a := range arms {
		if strings.HasPrefix(a, "bare-") {
			return a
		}
	}
	return ""
}

// compare lists which arms are compared, {arm, base}: each with the floor, ours with the bare connection of its plane
// and delivery, ours over QUIC with ours over TCP, and every other peer with our sink over TCP.
func compare(arms []string, floor string) (pairs [][2]string) {
	run := make(map[string]bool, len(arms))
	for _, a := range arms {
		run[a] = true
	}
	seen := make(map[[2]string]bool)
	add := func(arm, base string) {
		pair := [2]string{arm, base}
		if arm != base && run[arm] && run[base] && !seen[pair] {
			seen[pair] = true
			pairs = append(pairs, pair)
		}
	}
	for _, a := range arms {
		add(a, floor)
	}
	for _, a := range arms {
		add(a, "bare-"+a)
	}
	for _, a := range arms {
		if rest, quic := strings.CutPrefix(a, "quic-"); quic {
			add(a, "tcp-"+rest)
		}
	}
	for _, a := range arms {
		if !strings.HasPrefix(a, "bare-") {
			add(a, "tcp-sink")
		}
	}
	return pairs
}
