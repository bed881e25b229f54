package mux

// outgoing is something that stands in a lane's lists until the lane visits it: a stream.
type outgoing interface {
	// emit appends to b what the stream has for this lane, at most a quantum and at most room bytes: so many records, so many
	// bytes of those that were counted by enqueue. With more left it has put itself back into the lane's bulk list and says
	// so; more with nothing taken says that its next record does not fit the room. Control of a few bytes need not look
	// at the room. It is called by the goroutine that gathers, without the lane's lock.
	emit(l *lane, b []byte, room int) (out []byte, records, taken int, more bool)
}

// element is a stream's place in the lists of a lane. The lock of that lane guards it.
type element struct {
	owner      outgoing
	next, prev *element
	on         listID
}

// listID says on which list of its lane an element stands.
type listID uint8

const (
	onNone listID = iota
	onUrgent
	onBulk
)

// list is a doubly linked list without allocations, so that a stream that moves can leave at once.
type list struct {
	first, last *element
	n           int
}

func (q *list) push(e *element) {
	e.prev, e.next = q.last, nil
	if q.last == nil {
		q.first = e
	} else {
		q.last.next = e
	}
	q.last = e
	q.n++
}

func (q *list) pushFront(e *element) {
	e.prev, e.next = nil, q.first
	if q.first == nil {
		q.last = e
	} else {
		q.first.prev = e
	}
	q.first = e
	q.n++
}

func (q *list) remove(e *element) {
	if e.prev == nil {
		q.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.next, e.prev = nil, nil
	q.n--
}
