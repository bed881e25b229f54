package mux

import "sync"

// chunkPayload is what a chunk holds: 4,096 bytes less the next pointer inside it and the 8 bytes that the allocator puts
// before an object of this size with pointers, so that a chunk falls in the size class of 4,096. A byte more, and each
// takes 4,864.
const chunkPayload = 4096 - 8 - 8

// chunk is one piece of a stream's ring.
type chunk struct {
	next *chunk
	data [chunkPayload]byte
}

// chunkPool is a free list with a bound. It is not a sync.Pool: that forgets at every collection, and a worker would
// allocate its rings again each time.
type chunkPool struct {
	mu   sync.Mutex
	free *chunk
	n    int
}

// maxFreeChunks bounds the free list to 64 MiB: what 8,192 open responses hold on average.
const maxFreeChunks = 16384

func (p *chunkPool) get() *chunk {
	p.mu.Lock()
	c := p.free
	if c == nil {
		p.mu.Unlock()
		return new(chunk)
	}
	p.free, p.n = c.next, p.n-1
	p.mu.Unlock()
	c.next = nil
	return c
}

func (p *chunkPool) put(c *chunk) {
	p.mu.Lock()
	if p.n < maxFreeChunks {
		c.next, p.free, p.n = p.free, c, p.n+1
	}
	p.mu.Unlock()
}

// ring holds the bytes [base, tail) of a stream's string: what may still have to be sent, now or again. The mux never
// copies it for a replay; it moves a cursor.
//
// The stream's lock guards it. What an append and the read after it need stands first, close together: a worker with a thousand
// streams finds none of it in the cache, and a line of memory costs more than all the instructions here.
type ring struct {
	room  []byte // data of last, nil without one. Reached through last, it would cost the line at the chunk's head, too.
	tail  uint64 // offset behind the newest byte
	begin uint64 // offset of room[0]; tail without a chunk
	base  uint64 // offset of the oldest byte kept

	pool        *chunkPool
	first, last *chunk
	start       uint64 // offset of first.data[0]

	// at is a chunk at or before the send cursor and its offset, so that gathering need not walk from the front.
	at    *chunk
	atOff uint64
}

// append adds b behind the tail.
func (r *ring) append(b []byte) {
	for len(b) > 0 {
		n := copy(r.free(), b)
		r.tail += uint64(n)
		b = b[n:]
	}
}

// free is where the next bytes go: at least one.
func (r *ring) free() []byte {
	if r.tail-r.begin >= uint64(len(r.room)) {
		r.grow()
	}
	return r.room[r.tail-r.begin:]
}

// grow adds a chunk.
func (r *ring) grow() {
	c := r.pool.get()
	if r.last == nil {
		r.first, r.start = c, r.tail
	} else {
		r.last.next = c
	}
	r.last, r.room, r.begin = c, c.data[:], r.tail
}

// seek returns the chunk that holds offset and its place in it. offset must be in [base, tail).
func (r *ring) seek(offset uint64) (*chunk, int) {
	c, off := r.first, r.start
	if r.at != nil && r.atOff <= offset && r.atOff >= r.start {
		c, off = r.at, r.atOff
	}
	for offset-off >= chunkPayload {
		c, off = c.next, off+chunkPayload
	}
	r.at, r.atOff = c, off
	return c, int(offset - off)
}

// read appends n bytes from offset to b; [offset, offset+n) must be in the ring.
func (r *ring) read(b []byte, offset uint64, n int) []byte {
	if offset >= r.begin {
		i := int(offset - r.begin)
		return append(b, r.room[i:i+n]...)
	}
	c, i := r.seek(offset)
	for n > 0 {
		m := min(n, chunkPayload-i)
		b = append(b, c.data[i:i+m]...)
		n -= m
		c, i = c.next, 0
	}
	return b
}

// peek copies len(b) bytes from offset into b.
func (r *ring) peek(b []byte, offset uint64) {
	c, i := r.seek(offset)
	for {
		n := copy(b, c.data[i:])
		if b = b[n:]; len(b) == 0 {
			return
		}
		c, i = c.next, 0
	}
}

// release forgets everything before offset.
func (r *ring) release(offset uint64) {
	r.base = offset
	for r.first != nil && (offset-r.start >= chunkPayload || offset == r.tail) {
		c := r.first
		r.first, r.start = c.next, r.start+chunkPayload
		if r.at == c {
			r.at = nil
		}
		r.pool.put(c)
		if r.first == nil {
			r.last, r.room, r.at, r.start, r.begin = nil, nil, nil, r.tail, r.tail
		}
	}
}
