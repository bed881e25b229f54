package responseplane

import "maps"

// OpenTrace is told of the steps of one Open, for spans of a tracing system; any function may be nil. They are called
// by Open's goroutine, one step after the other, and must not wait. Each attempt goes through as many steps as it gets
// to.
type OpenTrace struct {
	// Route: attempt n, counted from 0, looks for a worker. Routed: it has the worker of this id and a stream there, or
	// err.
	Route  func(n int)
	Routed func(worker string, err error)
	// Deliver: the request is handed to the worker. header goes with it, and is this attempt's own: what is put into it
	// reaches the worker (a trace's context). Delivered: the worker has it, or err.
	Deliver   func(header map[string]string)
	Delivered func(err error)
	// FirstRecord: the first record is there, or err is why none came.
	FirstRecord func(err error)
}

func (t *OpenTrace) route(n int) {
	if t != nil && t.Route != nil {
		t.Route(n)
	}
}

func (t *OpenTrace) routed(worker string, err error) {
	if t != nil && t.Routed != nil {
		t.Routed(worker, err)
	}
}

// deliver returns the header to send.
func (t *OpenTrace) deliver(header map[string]string) map[string]string {
	if t == nil || t.Deliver == nil {
		return header
	}
	own := make(map[string]string, len(header)+2)
	maps.Copy(own, header)
	t.Deliver(own)
	return own
}

func (t *OpenTrace) delivered(err error) {
	if t != nil && t.Delivered != nil {
		t.Delivered(err)
	}
}

func (t *OpenTrace) firstRecord(err error) {
	if t != nil && t.FirstRecord != nil {
		t.FirstRecord(err)
	}
}
