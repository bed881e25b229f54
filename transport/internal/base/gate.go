package base

import (
	"errors"
	"sync"

	"github.com/laneway-ai/laneway/transport"
)

// ErrWriteClosed is what Write returns after CloseWrite.
var ErrWriteClosed = errors.New("transport: write after CloseWrite")

// Gate puts a lane's writes and its half close in order. A half close may be asked for at any time by anyone; the
// planes below cannot end a stream in the middle of a write, so the write that is running ends the stream when it is
// done.
type Gate struct {
	mu      sync.Mutex
	writing bool
	half    bool // CloseWrite was called
	closed  bool // Close was called
}

// Enter begins a write.
func (g *Gate) Enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed:
		return transport.ErrClosed
	case g.half:
		return ErrWriteClosed
	}
	g.writing = true
	return nil
}

// Leave ends a write. If it says true, the caller must end the stream now.
func (g *Gate) Leave() (end bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing = false
	return g.half && !g.closed
}

// Half asks for a half close. If now is true, the caller must end the stream itself; else a running write does it or it
// is already done.
func (g *Gate) Half() (now bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false, transport.ErrClosed
	}
	if g.half {
		return false, nil
	}
	g.half = true
	return !g.writing, nil
}

// Close closes the gate and says whether this call was the first.
func (g *Gate) Close() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = !g.closed
	g.closed = true
	return first
}

// HalfClosed says whether this side has ended its bytes.
func (g *Gate) HalfClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.half
}

// Closed says whether Close was called.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
