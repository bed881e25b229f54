package mux

import (
	"testing"
	"unsafe"
)

// What a record's way touches lies in the first three lines of memory of a stream, and a stream begins at one.
func TestOutStreamIsCompact(t *testing.T) {
	const line = 64
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers have 4 bytes: everything is smaller, and such machines serve no thousand streams")
	}
	var s OutStream
	if n := unsafe.Offsetof(s.ring) + unsafe.Offsetof(s.ring.base) + unsafe.Sizeof(s.ring.base); n > 3*line {
		t.Errorf("the fields of a record's way take %d bytes, three lines have %d", n, 3*line)
	}
	if n := unsafe.Sizeof(s); n != 6*line {
		t.Errorf("a stream has %d bytes; %d is a size of the allocator that keeps streams at the beginning of a line", n, 6*line)
	}
}
