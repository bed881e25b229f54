package frontend

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
	"github.com/laneway-ai/laneway/internal/frontend/outpath"
)

// output writes to a client under a deadline that rolls: it is set again when a write comes a while after it was set,
// not for each write. The deadlines of a stream of events over HTTP/2 are stall's.
type output struct {
	w       http.ResponseWriter
	flusher interface{ FlushError() error }
	rc      *http.ResponseController
	timeout time.Duration
	armed   time.Time
	slow    prometheus.Counter // clients that took no bytes until a deadline
	counted bool
	watch   *stall // nil = deadlines
}

func (s *Server) newOutput(w http.ResponseWriter) output {
	o := output{w: w, rc: http.NewResponseController(w), timeout: s.cfg.WriteTimeout, slow: s.metrics.slow}
	o.flusher, _ = w.(interface{ FlushError() error })
	return o
}

// events has the output watch its writes as fits r's protocol, for a stream that may be silent for longer than a write
// may take. The returned function must be called before the handler returns.
func (o *output) events(r *http.Request) (done func()) {
	if r.ProtoMajor == 1 {
		return func() {}
	}
	rc := o.rc
	o.watch = watchStall(o.timeout, func() { _ = rc.SetWriteDeadline(time.Unix(1, 0)) }) // it ends writes that wait
	return func() {
		o.watch.stop()
		o.watch, o.armed = nil, time.Time{}
		o.arm(time.Now()) // for what the server writes when the handler has returned
	}
}

func (o *output) write(p []byte, now time.Time) error {
	o.arm(now)
	_, err := o.w.Write(p)
	o.disarm()
	return o.result(err)
}

func (o *output) disarm() {
	if o.watch != nil {
		o.watch.end()
	}
}

func (o *output) arm(now time.Time) {
	if o.watch != nil {
		o.watch.begin(now)
		return
	}
	if now.Sub(o.armed) > min(o.timeout/4, time.Second) {
		o.armed = now
		_ = o.rc.SetWriteDeadline(now.Add(o.timeout)) // not supported: then there is none
	}
}

// result counts a client that was too slow, once.
func (o *output) result(err error) error {
	if err != nil && !o.counted && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, outpath.ErrFull) ||
		o.watch != nil && o.watch.fired.Load()) {
		o.counted = true
		o.slow.Inc()
	}
	return err
}

// inline writes and flushes on a connection that does not wait; it needs no deadline.
func (o *output) inline(p []byte) error {
	if _, err := o.w.Write(p); err != nil {
		return o.result(err)
	}
	return o.flush()
}

// settle sends what inline writes have left with the connection.
func (o *output) settle(c *outpath.Conn, now time.Time) error {
	o.arm(now)
	return o.result(c.Settle())
}

// writeAll writes in pieces, so that a large p has as many deadlines.
func (o *output) writeAll(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), writeMax)
		if err := o.write(p[:n], time.Now()); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (o *output) flush() error {
	if o.watch != nil {
		o.watch.begin(time.Now())
		defer o.watch.end()
	}
	if o.flusher != nil {
		return o.result(o.flusher.FlushError())
	}
	return o.result(o.rc.Flush())
}

func (o *output) keepAlive(now time.Time) error {
	buf := getBuffer()
	defer putBuffer(buf)
	*buf = openai.AppendKeepAlive(*buf)
	if err := o.write(*buf, now); err != nil {
		return err
	}
	return o.flush()
}
