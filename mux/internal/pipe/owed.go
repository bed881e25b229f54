package pipe

// Emitter is the owner of state that is put into the string when the lane writes: never a queue that grows.
type Emitter interface {
	// Emit appends what is due, at most some 16 KiB, and says whether there is more, which it may only if it has
	// appended something. It is called with no lock held by the goroutine that owns the write.
	Emit(p *Pipe) (more bool)
}

// Owed is an Emitter's place in the lists of its pipe, whose lock guards it.
type Owed struct {
	Owner      Emitter
	next, prev *Owed
	in         *list
	left       bool // Disown came while it emits
}

// list is a doubly linked list without allocations, so that an owner can leave at once.
type list struct {
	first, last *Owed
	n           int
}

func (q *list) push(o *Owed) {
	o.prev, o.next, o.in = q.last, nil, q
	if q.last == nil {
		q.first = o
	} else {
		q.last.next = o
	}
	q.last = o
	q.n++
}

func (q *list) remove(o *Owed) {
	if o.prev == nil {
		q.first = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		q.last = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.next, o.prev, o.in = nil, nil, nil
	q.n--
}

func (q *list) clear() {
	for q.first != nil {
		q.remove(q.first)
	}
}

// Owe has the owner's Emit called by the next gather. One that waits keeps its turn, but urgent news lifts it. A Flush
// must follow.
func (p *Pipe) Owe(o *Owed, at Place) {
	p.mu.Lock()
	p.OweLocked(o, at)
	p.mu.Unlock()
}

// OweLocked is Owe with the lock held.
func (p *Pipe) OweLocked(o *Owed, at Place) {
	if p.cfg.NoUrgent {
		at = Bulk
	}
	q := &p.owed[at]
	if o.in == q || o.in == &p.owed[Urgent] {
		return
	}
	if o.in != nil {
		o.in.remove(o)
	}
	q.push(o)
}

// Disown takes the owner out. An Emit that runs goes on.
func (p *Pipe) Disown(o *Owed) {
	p.mu.Lock()
	p.DisownLocked(o)
	p.mu.Unlock()
}

// DisownLocked is Disown with the lock held.
func (p *Pipe) DisownLocked(o *Owed) {
	o.left = true
	if o.in != nil {
		o.in.remove(o)
	}
}

// emit has what is owed appended: of urgent news a write's worth, whatever waits; then of bulk until a write's worth
// waits. The lock is held, and let go during each Emit.
func (p *Pipe) emit() {
	for _, at := range [...]Place{Urgent, Bulk} {
		q, stop := &p.owed[at], bulkPerWrite
		if at == Urgent {
			stop += p.unsent()
		}
		for visits := q.n; visits > 0 && q.first != nil && p.unsent() < stop; visits-- {
			o := q.first
			q.remove(o)
			o.left = false
			p.mu.Unlock()
			more := o.Owner.Emit(p)
			p.mu.Lock()
			if more && !o.left && o.in == nil {
				q.push(o)
				visits++
			}
		}
	}
}
