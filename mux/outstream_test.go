package mux

import (
	"testing"
	"unsafe"
)

// line is a line of the processor's cache.
const line = 64

// TestOutStreamIsCompact: what a record touches is one line, and streams begin at lines: the allocator's classes of
// these sizes are multiples of one.
func TestOutStreamIsCompact(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the layout is that of 64-bit processors")
	}
	var s OutStream
	if n := unsafe.Offsetof(s.behind) + unsafe.Sizeof(s.behind); n > line {
		t.Errorf("what a record touches takes %d bytes, a line has %d", n, line)
	}
	if n := unsafe.Sizeof(s); n <= 192 || n > 256 {
		t.Errorf("a stream takes %d bytes, the class of 256 is meant", n)
	}
}
