package mock

// queue is the waiting queue, first in first out. Engine.open bounds it.
type queue struct {
	q    []*seq
	head int
}

func (w *queue) len() int { return len(w.q) - w.head }

// first is the request that pop takes next; there must be one.
func (w *queue) first() *seq { return w.q[w.head] }

func (w *queue) push(s *seq) {
	if w.head > 32 && w.head > len(w.q)/2 { // move the rest to the front before the slice grows for nothing
		n := copy(w.q, w.q[w.head:])
		clear(w.q[n:])
		w.q, w.head = w.q[:n], 0
	}
	w.q = append(w.q, s)
}

func (w *queue) pop() *seq {
	s := w.q[w.head]
	w.q[w.head] = nil
	w.head++
	if w.head == len(w.q) {
		w.q, w.head = w.q[:0], 0
	}
	return s
}

// filter keeps the requests for which keep is true, in order.
func (w *queue) filter(keep func(*seq) bool) {
	n := w.head
	for _, s := range w.q[w.head:] {
		if keep(s) {
			w.q[n] = s
			n++
		}
	}
	clear(w.q[n:])
	w.q = w.q[:n]
}
