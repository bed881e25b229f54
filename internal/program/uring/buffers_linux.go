package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arena is memory outside Go's heap, which stays where it is. FreeArena gives it back.
func Arena(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
}

// FreeArena gives an Arena back. Nothing may use it any more, the kernel included.
func FreeArena(p []byte) error { return unix.Munmap(p) }

// Buffers are what receives write to. A completion names the buffer that it filled; Put gives that back, Publish tells
// the kernel.
type Buffers struct {
	size  int
	mask  uint16
	entry []buf // shared with the kernel, which reads
	data  []byte
	ring  []byte
	first uint16 // id in entry 0, which shares a word with the tail
	tail  uint16 // not yet published
}

// Buffers gives the ring n buffers of this size, n a power of two up to 32,768, under a number of their own.
func (r *Ring) Buffers(group uint16, n, size int) (*Buffers, error) {
	b := &Buffers{size: size, mask: uint16(n - 1)}
	var err error
	if b.ring, err = Arena(n * int(unsafe.Sizeof(buf{}))); err == nil {
		b.data, err = Arena(n * size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memory for receive buffers: %w", err), b.Free())
	}
	b.entry = unsafe.Slice((*buf)(unsafe.Pointer(&b.ring[0])), n)
	reg := &bufReg{addr: uint64(uintptr(unsafe.Pointer(&b.ring[0]))), entries: uint32(n), group: group}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerBufRing,
		uintptr(unsafe.Pointer(reg)), 1, 0, 0); errno != 0 {
		return nil, errors.Join(fmt.Errorf("io_uring_register, ring of buffers: %w", errno), b.Free())
	}
	for id := range n {
		b.Put(uint16(id))
	}
	b.Publish()
	return b, nil
}

// Bytes are the first n bytes of a buffer, valid until it is Put back.
func (b *Buffers) Bytes(id uint16, n int) []byte { return b.data[int(id)*b.size:][:n:n] }

// Put gives a buffer back. The kernel sees it after Publish.
func (b *Buffers) Put(id uint16) {
	i := b.tail & b.mask
	b.tail++
	e := &b.entry[i]
	e.addr, e.len = uint64(uintptr(unsafe.Pointer(&b.data[int(id)*b.size]))), uint32(b.size)
	if i == 0 {
		b.first = id // written with the tail: no one reads it before
		return
	}
	e.id = id
}

// Publish tells the kernel of all buffers that were Put. The tail is the second half of a 32-bit word whose first half
// is entry 0's id, because Go has no atomic store of 16 bits; the kernel only reads both.
func (b *Buffers) Publish() {
	var w [4]byte
	binary.NativeEndian.PutUint16(w[:], b.first)
	binary.NativeEndian.PutUint16(w[2:], b.tail)
	// after the entries themselves were written
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b.entry[0].id)), binary.NativeEndian.Uint32(w[:]))
}

// Free gives the memory back. The ring must have been closed, and nothing that was asked for with these buffers may be
// left.
func (b *Buffers) Free() error {
	var errs []error
	for _, m := range []*[]byte{&b.ring, &b.data} {
		if *m != nil {
			errs = append(errs, FreeArena(*m))
			*m = nil
		}
	}
	return errors.Join(errs...)
}
