package quic

import (
	"encoding/binary"
	"unsafe"
)

func ptr(b []byte) unsafe.Pointer { return unsafe.Pointer(&b[0]) }

func nativePut16(b []byte, v uint16) { binary.NativeEndian.PutUint16(b, v) }
