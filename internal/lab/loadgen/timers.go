package loadgen

// timers is a heap of wake times, each with the slot that it wakes. A slot has at most one entry that counts; others
// are stale and are dropped when they come up.
type timers []timer

type timer struct {
	at   int64
	slot int32
}

func (t *timers) push(at int64, slot int32) {
	h := append(*t, timer{at, slot})
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].at <= h[i].at {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	*t = h
}

func (t *timers) pop() timer {
	h := *t
	top := h[0]
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].at < h[c].at {
			c++
		}
		if h[i].at <= h[c].at {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	*t = h
	return top
}
