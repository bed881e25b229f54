package httpfront

import (
	"context"
	"net/http"
	"time"

	"github.com/laneway-ai/laneway/internal/openai"
)

// serveEvents streams the response as server-sent events.
func (x *exchange) serveEvents(includeUsage bool) {
	s := x.server
	h := x.w.Header()
	h["Content-Type"] = sseType
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = no
	chunks := openai.NewChunks(x.head, includeUsage)
	out := newOutput(x.w, s.cfg.WriteTimeout)

	ctx := x.ctx
	wait := s.keeper.watch(x.ctx, time.Now())
	if wait != nil {
		defer wait.leave()
		ctx = wait
	}
	begun := false
	for {
		recs, err := x.stream.NextBatch(ctx)
		now := time.Now()
		if err != nil && len(recs) == 0 && wait != nil && wait.again() {
			if out.keepAlive(now) != nil {
				x.abandon()
				return
			}
			wait.wrote(now)
			continue
		}
		x.account.took(len(recs), now)
		buf := getBuffer()
		if !begun {
			begun = true
			*buf = chunks.AppendStart(*buf)
		}
		failed := false
		for _, rec := range recs {
			*buf = chunks.AppendText(*buf, rec)
			if len(*buf) >= bufferFull {
				failed = failed || out.write(*buf, now) != nil
				*buf = (*buf)[:0]
			}
		}
		if err != nil {
			t, e, gone := x.ended(err)
			if !gone {
				if e != nil {
					*buf = openai.AppendErrorEvent(*buf, e)
				} else {
					*buf = chunks.AppendFinish(*buf, t.FinishReason)
					if includeUsage {
						*buf = chunks.AppendUsage(*buf, openai.Usage{Prompt: t.PromptTokens, Completion: t.CompletionTokens})
					}
				}
				*buf = openai.AppendDone(*buf)
				// No flush: the server flushes when the handler returns, together with the end of the body.
				_ = out.write(*buf, now)
			}
			putBuffer(buf)
			return
		}
		failed = failed || out.write(*buf, now) != nil || out.flush() != nil
		putBuffer(buf)
		if failed {
			x.abandon()
			return
		}
		if wait != nil {
			wait.wrote(now)
		}
	}
}

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

var _ context.Context = (*waiter)(nil)
