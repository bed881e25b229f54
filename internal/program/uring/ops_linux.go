package uring

import "unsafe"

// Send asks for send(2) of p with these flags (MSG_...). p must not be Go's memory, and stay as it is until its CQE is
// there.
func Send(fd int, p []byte, flags uint32, user uint64) SQE {
	return SQE{opcode: opSend, fd: int32(fd), addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))),
		len: uint32(len(p)), opFlags: flags, user: user}
}

// Recv asks for what comes over a socket, each time into a buffer of the group, until the connection ends, it is
// cancelled, or a CQE without More says that it has to be asked for again (no buffer was left: -ENOBUFS; nothing is
// lost).
func Recv(fd int, group uint16, user uint64) SQE {
	return SQE{opcode: opRecv, flags: sqeBufferSelect, ioprio: recvMultishot, fd: int32(fd), group: group, user: user}
}

// Poll asks once for one of the events (POLLIN, POLLOUT).
func Poll(fd int, events uint16, user uint64) SQE {
	mask := uint32(events)
	if bigEndian {
		mask <<= 16 // the kernel wants its halves swapped there
	}
	return SQE{opcode: opPollAdd, fd: int32(fd), opFlags: mask, user: user}
}

// Cancel ends the operation with the user data of. Both have a CQE: that of the operation says -ECANCELED, unless it
// was over before.
func Cancel(of, user uint64) SQE {
	return SQE{opcode: opAsyncCancel, fd: -1, addr: of, user: user}
}

var bigEndian = func() bool {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one)) == 0
}()
