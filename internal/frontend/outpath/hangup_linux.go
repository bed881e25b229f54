package outpath

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Hangups finds out that a client has closed its connection, or its half of it, or has reset it, whatever bytes of it
// lie unread before that. A read that waits finds out only when nothing lies there. All connections share one epoll
// instance, which the runtime's own poller watches: no thread waits in it, a connection costs one system call in its
// life, and a token none.
type Hangups struct {
	epoll *os.File
	raw   syscall.RawConn
	done  chan struct{}

	mu   sync.Mutex
	last uint64 // ids are never used twice, as descriptors are
	all  map[uint64]*Conn
}

// NewHangups fails where the process has no descriptor left or a sandbox forbids epoll. Close must be called.
func NewHangups() (*Hangups, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("outpath: epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // or the runtime would not poll it
		_ = unix.Close(fd)
		return nil, fmt.Errorf("outpath: epoll: %w", err)
	}
	h := &Hangups{epoll: os.NewFile(uintptr(fd), "epoll"), done: make(chan struct{}), all: make(map[uint64]*Conn)}
	if h.raw, err = h.epoll.SyscallConn(); err != nil {
		_ = h.epoll.Close()
		return nil, fmt.Errorf("outpath: epoll: %w", err)
	}
	go h.run() // until Close, which joins it
	return h, nil
}

// Close ends the watch; connections are as if there were none. Idempotent.
func (h *Hangups) Close() error {
	if h == nil {
		return nil
	}
	_ = h.epoll.Close() // a second one fails, which is fine
	<-h.done
	return nil
}

func (h *Hangups) run() {
	defer close(h.done)
	events := make([]unix.EpollEvent, 128)
	_ = h.raw.Read(func(fd uintptr) bool {
		for {
			n, err := unix.EpollWait(int(fd), events, 0)
			if err != nil && err != unix.EINTR {
				return true // cannot be: it is closed only after this has returned
			}
			if err == nil && n <= 0 {
				return false // wait for more
			}
			for i := range max(n, 0) {
				h.left(uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32)
			}
		}
	})
}

func (h *Hangups) left(id uint64) {
	h.mu.Lock()
	c := h.all[id]
	delete(h.all, id) // once is enough
	h.mu.Unlock()
	if c != nil {
		c.leave()
	}
}

// add watches c until it is closed or its client has left. Without a watch the server's own read is what finds out.
func (h *Hangups) add(c *Conn) (id uint64) {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	h.last++
	id = h.last
	h.all[id] = c
	h.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: int32(uint32(id)),
		Pad: int32(uint32(id >> 32))}
	added := false
	_ = h.raw.Control(func(epoll uintptr) { // both descriptors stay open meanwhile
		_ = c.raw.Control(func(fd uintptr) {
			added = unix.EpollCtl(int(epoll), unix.EPOLL_CTL_ADD, int(fd),
				&event) == nil
		})
	})
	if !added {
		h.remove(id)
	}
	return id
}

// remove forgets a connection that is being closed; the kernel does so itself.
func (h *Hangups) remove(id uint64) {
	if h == nil || id == 0 {
		return
	}
	h.mu.Lock()
	delete(h.all, id)
	h.mu.Unlock()
}
