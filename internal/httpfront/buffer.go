package httpfront

import "sync"

// Buffers are taken for one write and given back at once: an open response that waits for its next token holds none.
const (
	bufferSize = 4 << 10
	bufferKeep = 128 << 10 // larger ones are not kept
	bufferFull = 64 << 10  // a write is not built up beyond this (and one event)
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
