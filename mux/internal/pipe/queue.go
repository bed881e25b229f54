package pipe

// queue is a first-in first-out list in a slice that keeps its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int    { return len(q.items) - q.head }
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }
func (q *queue[T]) last() *T    { return &q.items[len(q.items)-1] }
func (q *queue[T]) all() []T    { return q.items[q.head:] }

func (q *queue[T]) push(v T) {
	if q.head > 32 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[T]) pop() T {
	var zero T
	v := q.items[q.head]
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return v
}
