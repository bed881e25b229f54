package mux

import (
	"testing"
	"unsafe"
)

// What a record touches of its stream lies in five lines of the processor's cache, and warm reads a word of each.
func TestStreamLines(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the order is made for 64 bits")
	}
	var s InStream
	const before = 8 // what the allocator puts before an object of this size
	line := func(offset uintptr) uintptr { return (before + offset) / 64 }
	lines := unsafe.Offsetof(s.heads) + unsafe.Offsetof(s.heads.line)
	if (before+lines)%64 != 0 {
		t.Errorf("the headers begin %d bytes into a line", (before+lines)%64)
	}
	each := unsafe.Sizeof(s.heads.line[0])
	still := unsafe.Offsetof(s.heads.line[0].still)
	warmed := map[uintptr]bool{}
	for _, offset := range []uintptr{unsafe.Offsetof(s.slot), unsafe.Offsetof(s.link), unsafe.Offsetof(s.minted), lines + still, lines + each + still} {
		warmed[line(offset)] = true
	}
	if len(warmed) != 5 {
		t.Errorf("warm reads of the lines %v, expected 5 of them", warmed)
	}
	for name, offset := range map[string]uintptr{
		"mu": unsafe.Offsetof(s.mu), "unread": unsafe.Offsetof(s.unread), "reported": unsafe.Offsetof(s.reported), "passing": unsafe.Offsetof(s.passing) + 16,
		"sink": unsafe.Offsetof(s.sink), "end": unsafe.Offsetof(s.end), "ready": unsafe.Offsetof(s.ready) + 16, "heads": unsafe.Offsetof(s.heads),
	} {
		if !warmed[line(offset)] {
			t.Errorf("%s lies in line %d, which warm does not read", name, line(offset))
		}
	}
}
