package pipe

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Sizes of chunks: powers of two from 4 KiB, so that an idle lane holds little, to 64 KiB, the longest record.
const (
	minChunk     = 4 << 10
	maxChunk     = 64 << 10
	chunkClasses = 5
	// maxFree bounds what a Budget's pool keeps of each size, in bytes.
	maxFree = 8 << 20
)

// chunk holds whole records, back to back. b[:len(b)] is used.
type chunk struct {
	b    []byte
	refs int // segments and writes that hold it, and one while it is open; the pipe's lock guards it
}

// segment is a run of whole records in a chunk.
type segment struct {
	c        *chunk
	from, to int
}

func (s segment) bytes() []byte { return s.c.b[s.from:s.to] }

// Budget bounds what a process keeps for its streams and lanes, and pools the chunks of its logs.
type Budget struct {
	limit int64
	used  atomic.Int64
	logs  atomic.Int64 // of it the logs

	mu   sync.Mutex
	free [chunkClasses][]*chunk
	out  int // chunks that pipes hold
}

// NewBudget makes a Budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Take takes n bytes, all or nothing.
func (b *Budget) Take(n int64) bool {
	for {
		have := b.used.Load()
		if have+n > b.limit {
			return false
		}
		if b.used.CompareAndSwap(have, have+n) {
			return true
		}
	}
}

// Give returns n bytes.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Used and Logs are the bytes that are taken, and those of them that are logs.
func (b *Budget) Used() int64 { return b.used.Load() }
func (b *Budget) Logs() int64 { return b.logs.Load() }

// Limit is what the Budget was made with.
func (b *Budget) Limit() int64 { return b.limit }

// addLog counts the bytes of a log, which may go beyond the limit by what each lane may keep (minLog).
func (b *Budget) addLog(n int) {
	b.used.Add(int64(n))
	b.logs.Add(int64(n))
}

func (b *Budget) over() bool { return b.used.Load() > b.limit }

// class is the smallest class that holds n bytes.
func class(n int) int { return max(bits.Len(uint(n-1))-bits.Len(minChunk-1), 0) }

// get returns an empty chunk of at least n bytes, n at most maxChunk.
func (b *Budget) get(n int) *chunk {
	k := class(n)
	b.mu.Lock()
	b.out++
	if free := b.free[k]; len(free) > 0 {
		c := free[len(free)-1]
		free[len(free)-1] = nil
		b.free[k] = free[:len(free)-1]
		b.mu.Unlock()
		return c
	}
	b.mu.Unlock()
	return &chunk{b: make([]byte, 0, minChunk<<k)}
}

func (b *Budget) put(c *chunk) {
	k := class(cap(c.b))
	c.b = c.b[:0]
	b.mu.Lock()
	b.out--
	if len(b.free[k]) < maxFree/(minChunk<<k) {
		b.free[k] = append(b.free[k], c)
	}
	b.mu.Unlock()
}

// drop lets one reference go. The lock of the chunk's pipe is held.
func (p *Pipe) drop(c *chunk) {
	if c.refs--; c.refs == 0 {
		p.cfg.Budget.put(c)
	}
}
