package udp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pacing is what the kernel made of one option that hands pacing to it.
type Pacing struct {
	Option   string `json:"option"`
	Asked    string `json:"asked"`
	ReadBack string `json:"read_back"` // what getsockopt says
	Measured string `json:"measured"`
	Effect   bool   `json:"effect"`
	Note     string `json:"note"`
}

const (
	pacingRate  = 4_000_000 // bytes a second
	pacingBytes = 1_000_000 // takes 250 ms at that rate
	txDelay     = 200 * time.Millisecond
	// noFQ is the reason when an option changes nothing.
	noFQ = "without effect: the interface has no fq queueing discipline (loopback has none unless it is set)"
)

// Pacings sets SO_MAX_PACING_RATE and SO_TXTIME on a socket, reads them back, and measures whether they do anything.
func Pacings() ([]Pacing, error) {
	rate, err := maxPacingRate()
	if err != nil {
		return nil, fmt.Errorf("SO_MAX_PACING_RATE: %w", err)
	}
	at, err := txTime()
	if err != nil {
		return nil, fmt.Errorf("SO_TXTIME: %w", err)
	}
	return []Pacing{rate, at}, nil
}

func note(effect bool) string {
	if effect {
		return "the kernel paces"
	}
	return noFQ
}

// maxPacingRate sends pacingBytes and measures when the last of it came.
func maxPacingRate() (p Pacing, err error) {
	s, err := newPair(2*pacingBytes, false)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := unix.SetsockoptInt(s.send, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, pacingRate); err != nil {
		return p, os.NewSyscallError("setsockopt", err)
	}
	back, err := unix.GetsockoptInt(s.send, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE)
	if err != nil {
		return p, os.NewSyscallError("getsockopt", err)
	}
	const size = 1000
	tx, err := newSender(s.send, Way{Messages: 1}, size)
	if err != nil {
		return p, err
	}
	rx := newReceiver(s.recv, size)
	began := time.Now()
	last := began
	for sent := 0; sent < pacingBytes; sent += size {
		if _, err := tx.call(uint64(sent / size)); err != nil {
			return p, err
		}
	}
	for quiet := 0; quiet < 10 && rx.datagrams < pacingBytes/size; {
		switch err := rx.call(); {
		case err == nil:
			last, quiet = time.Now(), 0
		case errors.Is(err, errTimeout):
			quiet++
		default:
			return p, err
		}
	}
	if rx.datagrams == 0 {
		return p, errors.New("nothing was received")
	}
	got := float64(rx.datagrams) * size / last.Sub(began).Seconds()
	effect := got < 2*pacingRate
	return Pacing{"SO_MAX_PACING_RATE", fmt.Sprintf("%.1f MB/s", pacingRate/1e6),
		fmt.Sprintf("%.1f MB/s", float64(back)/1e6),
		fmt.Sprintf("%.1f MB/s", got/1e6), effect, note(effect)}, nil
}

// sockTxtime is the kernel's struct sock_txtime.
type sockTxtime struct {
	clock int32
	flags uint32
}

// txTime sends a datagram that is to leave txDelay later and measures when it came.
func txTime() (p Pacing, err error) {
	s, err := newPair(1<<20, false)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	set := sockTxtime{clock: unix.CLOCK_MONOTONIC} // the clock that fq takes
	if _, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.send), unix.SOL_SOCKET, unix.SO_TXTIME,
		uintptr(unsafe.Pointer(&set)), unsafe.Sizeof(set), 0); e != 0 {
		return p, os.NewSyscallError("setsockopt", e)
	}
	var back sockTxtime
	n := uint32(unsafe.Sizeof(back))
	if _, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.send), unix.SOL_SOCKET, unix.SO_TXTIME,
		uintptr(unsafe.Pointer(&back)), uintptr(unsafe.Pointer(&n)), 0); e != 0 {
		return p, os.NewSyscallError("getsockopt", e)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return p, os.NewSyscallError("clock_gettime", err)
	}
	control := make([]byte, unix.CmsgSpace(8))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	h.Level, h.Type = unix.SOL_SOCKET, unix.SCM_TXTIME
	h.SetLen(unix.CmsgLen(8))
	binary.NativeEndian.PutUint64(control[unix.CmsgLen(0):], uint64(now.Nano()+int64(txDelay)))
	began := time.Now()
	if _, err := unix.SendmsgN(s.send, make([]byte, MinDatagram), control, nil, 0); err != nil {
		return p, os.NewSyscallError("sendmsg with SCM_TXTIME", err)
	}
	rx := newReceiver(s.recv, MinDatagram)
	for quiet := 0; rx.datagrams == 0; quiet++ {
		if err := rx.call(); err != nil && !errors.Is(err, errTimeout) {
			return p, err
		}
		if quiet > 100 {
			return p, errors.New("the datagram did not come")
		}
	}
	took := time.Since(began)
	effect := took > txDelay*3/4
	return Pacing{"SO_TXTIME", fmt.Sprintf("clock %d, %v later", set.clock, txDelay), fmt.Sprintf("clock %d, flags %d",
		back.clock, back.flags),
		fmt.Sprintf("%.2f ms later", float64(took)/float64(time.Millisecond)), effect, note(effect)}, nil
}
