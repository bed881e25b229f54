package planebench

import (
	"encoding/binary"
	"fmt"
)

// MinTokenBytes is the shortest record: id u64, number u32, length u32, stamp i64, check u64.
const MinTokenBytes = 32

// mix is a finalizer of splitmix64: each bit of its input moves half the bits of its output.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// putRecord fills b, the whole of a record.
func putRecord(b []byte, id uint64, number uint32, stamp int64) {
	binary.LittleEndian.PutUint64(b, id)
	binary.LittleEndian.PutUint32(b[8:], number)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(b)))
	binary.LittleEndian.PutUint64(b[16:], uint64(stamp))
	check := mix(id ^ mix(uint64(number)<<32|uint64(len(b))) ^ uint64(stamp))
	binary.LittleEndian.PutUint64(b[24:], check)
	rest := b[MinTokenBytes:]
	for ; len(rest) >= 8; rest = rest[8:] {
		check++
		binary.LittleEndian.PutUint64(rest, check)
	}
	for i := range rest {
		rest[i] = byte(check) + byte(i)
	}
}

// checkRecord says whether b is, byte for byte, record number of response id, size bytes long, and when it was made.
func checkRecord(b []byte, id uint64, number uint32, size int) (stamp int64, ok bool) {
	if len(b) != size || len(b) < MinTokenBytes {
		return 0, false
	}
	stamp = int64(binary.LittleEndian.Uint64(b[16:]))
	check := mix(id ^ mix(uint64(number)<<32|uint64(len(b))) ^ uint64(stamp))
	ok = binary.LittleEndian.Uint64(b) == id && binary.LittleEndian.Uint32(b[8:]) == number &&
		binary.LittleEndian.Uint32(b[12:]) == uint32(size) && binary.LittleEndian.Uint64(b[24:]) == check
	rest := b[MinTokenBytes:]
	for ; len(rest) >= 8; rest = rest[8:] {
		check++
		ok = ok && binary.LittleEndian.Uint64(rest) == check
	}
	for i := range rest {
		ok = ok && rest[i] == byte(check)+byte(i)
	}
	return stamp, ok
}

// describe is what a record that is not the one expected says it is.
func describe(b []byte) string {
	if len(b) < MinTokenBytes {
		return fmt.Sprintf("%d bytes", len(b))
	}
	return fmt.Sprintf("record %d of response %x, %d bytes", binary.LittleEndian.Uint32(b[8:]),
		binary.LittleEndian.Uint64(b), len(b))
}
