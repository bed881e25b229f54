package peers

import (
	"context"
	"io"
	"sync"

	"github.com/laneway-ai/laneway/internal/lab/refplane"
)

// bareResponse is a response at the frontend of Bare.
type bareResponse struct {
	c       *bareConn
	slot    uint32
	request []byte
	trailer []byte // set before the end is told

	// Of a sink, which is set before the request goes out.
	sink func([][]byte, error) bool
	one  [1][]byte
	once sync.Once // the end

	// Of a puller.
	wake chan struct{} // capacity 1
	mu   sync.Mutex
	kept refplane.Records
	err  error
}

func (r *bareResponse) send(request []byte) error {
	r.c.table[r.slot].Store(r)
	if err := r.c.put(r.slot, 0, request); err != nil {
		return err
	}
	r.c.flush()
	return nil
}

// OnRecords implements planebench.PeerSink.
func (r *bareResponse) OnRecords(sink func([][]byte, error) bool) {
	r.sink = sink
	if err := r.send(r.request); err != nil {
		r.fail(err)
	}
}

// take hands a record, or the end, to the consumer. It is called by the connection's reader.
func (r *bareResponse) take(end bool, body []byte) {
	switch {
	case r.sink != nil && end:
		r.trailer = append([]byte(nil), body...)
		r.once.Do(func() { r.sink(nil, io.EOF) })
		return
	case r.sink != nil:
		r.one[0] = body
		r.sink(r.one[:], nil)
		return
	}
	r.mu.Lock()
	if end {
		r.trailer, r.err = append([]byte(nil), body...), io.EOF
	} else {
		r.kept.Add(body)
	}
	r.mu.Unlock()
	r.rouse()
}

func (r *bareResponse) rouse() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// fail ends the response without its end.
func (r *bareResponse) fail(err error) {
	if r.sink != nil {
		r.once.Do(func() { r.sink(nil, err) })
		return
	}
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.rouse()
}

// NextBatch implements planebench.PeerResponse.
func (r *bareResponse) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		r.mu.Lock()
		some, err := r.kept.Take(), r.err
		r.mu.Unlock()
		if some {
			return r.kept.Batch(), nil
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Trailer implements planebench.PeerResponse.
func (r *bareResponse) Trailer() []byte { return r.trailer }

// Kill implements planebench.PeerResponse.
func (r *bareResponse) Kill() { r.fail(errClosed) }

// Close implements planebench.PeerResponse. A slot is used again only after its end has come.
func (r *bareResponse) Close() error {
	if r.trailer == nil {
		return nil // more may come for this response
	}
	r.c.table[r.slot].Store(nil)
	r.c.free <- r.slot // never waits: it has a place for each slot
	return nil
}
