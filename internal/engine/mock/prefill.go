package mock

// prefills is a heap of the requests that are being prefilled, by the time when that is done. It is written out because
// container/heap costs an allocation and two calls through an interface for each step.
type prefills []*seq

func (h prefills) less(i, j int) bool {
	if h[i].readyAt.Equal(h[j].readyAt) {
		return h[i].order < h[j].order
	}
	return h[i].readyAt.Before(h[j].readyAt)
}

func (h *prefills) push(s *seq) {
	*h = append(*h, s)
	q := *h
	for i := len(q) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.less(i, up) {
			break
		}
		q[i], q[up] = q[up], q[i]
		i = up
	}
}

func (h *prefills) pop() *seq {
	q := *h
	s := q[0]
	last := len(q) - 1
	q[0], q[last] = q[last], nil
	*h = q[:last]
	h.down(0)
	return s
}

func (h prefills) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h.less(c, least) {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// filter keeps the requests for which keep is true.
func (h *prefills) filter(keep func(*seq) bool) {
	q := *h
	n := 0
	for _, s := range q {
		if keep(s) {
			q[n] = s
			n++
		}
	}
	if n == len(q) {
		return
	}
	clear(q[n:])
	*h = q[:n]
	for i := n/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}
