package frontend

import "sync"

// Buffers are taken for one write and given back at once: an open response that waits for its next token holds none.
const (
	bufferSize = 4 << 10
	bufferKeep = 64 << 10 // larger ones are not kept
	// writeMax is the most that one write carries, give or take an event: its deadline covers the whole of it, and a
	// client that reads slowly, but reads, must not miss it.
	writeMax = 16 << 10
)

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) > bufferKeep {
		return
	}
	*b = (*b)[:0]
	buffers.Put(b)
}
