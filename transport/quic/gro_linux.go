package quic

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Sizes of a read with GRO: the kernel joins datagrams of one sender up to 64 KiB.
const (
	groMessages = 4
	groBytes    = 64 << 10
	groOOB      = 128
)

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// block is what one recvmmsg fills. It belongs to a socket only while it holds datagrams, so a thousand idle sockets
// need none.
type block struct {
	hdrs  [groMessages]mmsghdr
	iovs  [groMessages]unix.Iovec
	names [groMessages]unix.RawSockaddrInet6 // as large as the largest
	oob   [groMessages][groOOB]byte
	data  [groMessages][groBytes]byte
}

// blocks keeps blocks that nobody holds.
type blocks struct{ pool sync.Pool }

func (b *blocks) get() *block {
	k, _ := b.pool.Get().(*block)
	if k == nil {
		k = new(block)
		for i := range k.hdrs {
			k.iovs[i].Base = &k.data[i][0]
			k.iovs[i].SetLen(groBytes)
			h := &k.hdrs[i].hdr
			h.Name = (*byte)(unsafe.Pointer(&k.names[i]))
			h.Iov = &k.iovs[i]
			h.SetIovlen(1)
			h.Control = &k.oob[i][0]
		}
	}
	for i := range k.hdrs { // the kernel overwrites these
		h := &k.hdrs[i].hdr
		h.Namelen = unix.SizeofSockaddrInet6
		h.SetControllen(groOOB)
		h.Flags = 0
	}
	return k
}

func (b *blocks) put(k *block) { b.pool.Put(k) }

// groReader reads joined datagrams and hands them out one by one. It is used by one goroutine, quic-go's reader.
type groReader struct {
	raw    syscall.RawConn
	blocks *blocks
	sock   *socket

	blk   *block
	count int // messages in blk
	index int // the message that is being handed out
	off   int // where its next datagram begins
	seg   int // the size of its datagrams
	from  *account

	errno syscall.Errno
	try   func(fd uintptr) bool
}

func newGROReader(raw syscall.RawConn, b *blocks, s *socket) *groReader {
	r := &groReader{raw: raw, blocks: b, sock: s}
	r.try = r.receive
	return r
}

// read fills ms with at least one datagram.
func (r *groReader) read(ms []ipv4.Message) (int, error) {
	if r.blk == nil {
		if err := r.raw.Read(r.try); err != nil {
			return 0, err
		}
		if r.errno != 0 {
			return 0, os.NewSyscallError("recvmmsg", r.errno)
		}
		r.index = 0
		r.begin()
	}
	n := 0
	for n < len(ms) && r.blk != nil {
		r.take(&ms[n])
		n++
	}
	return n, nil
}

// receive runs recvmmsg; false means that there is nothing yet. The block is taken only for the call, so that a socket
// that waits holds none.
func (r *groReader) receive(fd uintptr) bool {
	k := r.blocks.get()
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&k.hdrs[0])), groMessages,
			unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			r.blocks.put(k)
			return false
		case errno != 0 || n == 0:
			r.blocks.put(k)
			r.errno = errno
			return errno != 0
		}
		r.sock.received.Add(1)
		r.blk, r.count, r.errno = k, int(n), 0
		return true
	}
}

// begin reads what the message at index says about itself.
func (r *groReader) begin() {
	h := &r.blk.hdrs[r.index]
	r.off = 0
	r.seg = groSize(r.blk.oob[r.index][:h.hdr.Controllen])
	if r.seg <= 0 {
		r.seg = int(h.n)
	}
	if r.from = r.sock.peer; r.from == nil {
		r.from = r.sock.accounts.of(sender(&r.blk.names[r.index]), nil)
	}
}

// take copies the next datagram to m.
func (r *groReader) take(m *ipv4.Message) {
	h := &r.blk.hdrs[r.index]
	end := min(r.off+r.seg, int(h.n))
	m.N = copy(m.Buffers[0], r.blk.data[r.index][r.off:end]) // one that does not fit is no packet of ours
	m.NN = copy(m.OOB, r.blk.oob[r.index][:h.hdr.Controllen])
	m.Flags = 0
	m.Addr = r.from.addr
	r.sock.feeds(r.from, 1)
	r.off = end
	if r.off < int(h.n) {
		return
	}
	if r.index++; r.index < r.count {
		r.begin()
		return
	}
	r.blocks.put(r.blk)
	r.blk = nil
}

// groSize is the UDP_GRO of control messages: the size of the datagrams that were joined, 0 if it is a single one.
func groSize(oob []byte) int {
	for len(oob) > 0 {
		h, body, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(body) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(body)))
		}
		oob = rest
	}
	return 0
}

// sender is the address in a name that the kernel filled.
func sender(name *unix.RawSockaddrInet6) netip.AddrPort {
	switch name.Family {
	case unix.AF_INET:
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), bigEndian(v4.Port))
	case unix.AF_INET6:
		a := netip.AddrFrom16(name.Addr)
		if name.Scope_id != 0 && !a.Is4In6() {
			a = a.WithZone(strconv.FormatUint(uint64(name.Scope_id), 10))
		}
		return netip.AddrPortFrom(a, bigEndian(name.Port))
	}
	return netip.AddrPort{}
}

// bigEndian turns a port in network order, held as a native integer, into a number.
func bigEndian(p uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], p)
	return binary.BigEndian.Uint16(b[:])
}
