package uring

import "unsafe"

// The part of linux/io_uring.h that is used here.
const (
	offSQ, offSQEs = 0, 0x10000000

	setupCQSize       = 1 << 3
	setupClamp        = 1 << 4
	setupRingDisabled = 1 << 6
	setupSubmitAll    = 1 << 7
	setupCoopTaskrun  = 1 << 8
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13

	featSingleMmap = 1 << 0
	featNoDrop     = 1 << 1
	featExtArg     = 1 << 8

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	registerEnableRings = 12
	registerBufRing     = 22

	opPollAdd     = 6
	opAsyncCancel = 14
	opSend        = 26
	opRecv        = 27

	sqeBufferSelect = 1 << 5
	recvMultishot   = 1 << 1

	cqeBuffer = 1 << 0
	cqeMore   = 1 << 1
)

// SQE is an operation that is asked for. Make it with Send, Recv, Poll or Cancel.
type SQE struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, opFlags  uint32
	user          uint64
	group         uint16
	_             uint16
	_             uint32
	_             [2]uint64
}

// CQE is what became of an operation.
type CQE struct {
	User  uint64 // as it was asked for
	Res   int32  // what the system call would have returned, or an error number, negative
	flags uint32
}

// More says that the operation stays armed and will have another CQE.
func (c *CQE) More() bool { return c.flags&cqeMore != 0 }

// Buffer is the buffer that was filled, of those that the operation was given.
func (c *CQE) Buffer() (id uint16, ok bool) { return uint16(c.flags >> 16), c.flags&cqeBuffer != 0 }

type params struct {
	sqEntries, cqEntries, flags, threadCPU, threadIdle, features, wqFD uint32
	_                                                                  [3]uint32
	sq                                                                 struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// waitArg is struct io_uring_getevents_arg.
type waitArg struct {
	sigmask     uint64
	sigmaskSize uint32
	_           uint32
	timespec    uint64
}

// bufReg is struct io_uring_buf_reg.
type bufReg struct {
	addr    uint64
	entries uint32
	group   uint16
	flags   uint16
	_       [3]uint64
}

// buf is struct io_uring_buf. The tail of the ring of buffers lies over pad of the first.
type buf struct {
	addr uint64
	len  uint32
	id   uint16
	pad  uint16
}

// The kernel's sizes: a mistake above does not compile.
var (
	_ [64]byte  = [unsafe.Sizeof(SQE{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(CQE{})]byte{}
	_ [120]byte = [unsafe.Sizeof(params{})]byte{}
	_ [24]byte  = [unsafe.Sizeof(waitArg{})]byte{}
	_ [40]byte  = [unsafe.Sizeof(bufReg{})]byte{}
	_ [16]byte  = [unsafe.Sizeof(buf{})]byte{}
)
