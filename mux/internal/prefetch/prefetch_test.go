package prefetch

import (
	"bytes"
	"testing"
	"unsafe"
)

// It touches nothing and never fails, wherever the addresses point.
func TestWriteChangesNothing(t *testing.T) {
	b := bytes.Repeat([]byte("laneway"), 1000)
	want := bytes.Clone(b)
	at := uintptr(unsafe.Pointer(&b[0]))
	for i := range uintptr(len(b)) {
		Write(at+i, at+uintptr(len(b))-1-i)
	}
	if !bytes.Equal(b, want) {
		t.Error("the memory has changed")
	}
	for _, p := range []uintptr{0, 1, 63, ^uintptr(0), ^uintptr(0) - 64, 1 << (8*unsafe.Sizeof(at) - 1)} { // no memory of ours
		Write(p, at)
		Write(at, p)
	}
}
