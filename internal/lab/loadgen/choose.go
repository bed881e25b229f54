package loadgen

import "fmt"

// fallbackKey is where the report's config says why the client is not one that costs less.
const fallbackKey = "client_fallback"

// newClient makes the client that the configuration asks for. With ClientAuto it is the one that costs least of those
// that work here, and e.fallback says what kept it from being a cheaper one.
func (e *engine) newClient() (client, error) {
	kind := e.cfg.Client
	if kind == ClientAuto {
		kind = e.choose()
	}
	switch {
	case kind == ClientGoroutines:
		return newGoroutineClient(e), nil
	case e.target.tls:
		return nil, fmt.Errorf("the %s client does not speak TLS: use the goroutines client, or http", kind)
	}
	c, err := newLoopClient(e, kind)
	// what the probe did not see, like a limit on memory
	if err != nil && e.cfg.Client == ClientAuto && kind == ClientRing {
		e.fall(err)
		return newLoopClient(e, ClientEpoll)
	}
	return c, err
}

func (e *engine) choose() string {
	switch {
	case e.target.tls:
		e.fallback = "https: only the goroutines client speaks TLS"
		return ClientGoroutines
	case !haveLoops:
		e.fallback = "this system is not Linux"
		return ClientGoroutines
	}
	if err := probeRing(); err != nil {
		e.fall(err)
		return ClientEpoll
	}
	return ClientRing
}

// fall notes why epoll is used.
func (e *engine) fall(err error) {
	e.fallback = err.Error()
	e.cfg.Log.Info("the client is epoll, which costs more than io_uring", "reason", err)
}
