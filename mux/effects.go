package mux

// effects collects what must be done once all locks are let go: waking, callbacks, flushes, closing lanes. Nearly every
// record has none, and then it costs nothing.
type effects []func()

func (fx *effects) add(fn func()) { *fx = append(*fx, fn) }

func (fx effects) run() {
	for _, fn := range fx {
		fn()
	}
}

// signal wakes whoever waits on a channel of capacity 1, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
