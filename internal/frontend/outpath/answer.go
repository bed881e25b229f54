package outpath

import "sync"

// answer is the answer that is under way on a connection, if one is.
type answer struct {
	hangups *Hangups // nil = none

	mu    sync.Mutex
	watch uint64 // names the connection's watch; 0 until the first answer
	gone  bool   // the client has left
	open  bool
	left  func()
}

// Begin says that an answer is under way until End. When the client leaves before that, or has left already, left is
// called, once: it must not wait. Closed meanwhile, the connection is reset, so that what has been sent of the answer
// does not look like all of it.
func (c *Conn) Begin(left func()) {
	a := &c.answer
	a.mu.Lock()
	a.open, a.left = true, left
	if a.watch == 0 {
		a.watch = a.hangups.add(c)
	}
	gone := a.gone
	a.mu.Unlock()
	if gone {
		c.leave()
	}
}

// End says that the answer is complete, as far as its writer is concerned.
func (c *Conn) End() {
	a := &c.answer
	a.mu.Lock()
	a.open, a.left = false, nil
	a.mu.Unlock()
}

// leave notes that the client has left.
func (c *Conn) leave() {
	a := &c.answer
	a.mu.Lock()
	left := a.left
	a.gone, a.left = true, nil
	a.mu.Unlock()
	if left != nil {
		left()
	}
}

// closing ends the watch. An answer that is under way has the connection reset.
func (c *Conn) closing() {
	a := &c.answer
	a.mu.Lock()
	watch, open := a.watch, a.open
	a.mu.Unlock()
	a.hangups.remove(watch)
	if open {
		_ = c.tcp.SetLinger(0)
	}
}
