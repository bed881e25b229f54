package httpfront

import (
	"net/http"
	"time"

	"github.com/laneway-ai/laneway/internal/openai"
)

// output writes to a client under a deadline that rolls: it is set again when a write comes a while after it was set, not for each write.
type output struct {
	w       http.ResponseWriter
	flusher interface{ FlushError() error }
	rc      *http.ResponseController
	timeout time.Duration
	armed   time.Time
}

func newOutput(w http.ResponseWriter, timeout time.Duration) output {
	o := output{w: w, rc: http.NewResponseController(w), timeout: timeout}
	o.flusher, _ = w.(interface{ FlushError() error })
	return o
}

func (o *output) write(p []byte, now time.Time) error {
	if now.Sub(o.armed) > min(o.timeout/4, time.Second) {
		o.armed = now
		_ = o.rc.SetWriteDeadline(now.Add(o.timeout)) // not supported: then there is none
	}
	_, err := o.w.Write(p)
	return err
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
	if o.flusher != nil {
		return o.flusher.FlushError()
	}
	return o.rc.Flush()
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
