package httpfront

import (
	"errors"
	"net/http"
	"time"

	"github.com/laneway-ai/laneway/internal/openai"
)

// serveEvents streams the response as server-sent events.
func (x *exchange) serveEvents(r *http.Request, includeUsage bool) {
	s := x.server
	h := x.w.Header()
	h["Content-Type"] = sseType
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = no
	x.chunks = openai.NewChunks(x.head, includeUsage)
	x.out = s.newOutput(x.w)
	defer x.out.events(r)()

	ctx := x.ctx
	wait := s.keeper.watch(x.ctx, time.Now())
	if wait != nil {
		defer wait.leave()
		ctx = wait.ctx()
	}
	x.wait = wait
	if sinks, ok := x.stream.(SinkStream); ok && x.conn != nil {
		x.feed = newInline(x, sinks, x.conn)
	}
	chunks, out := &x.chunks, &x.out // the sink's while x.feed.next waits
	begun, sent := false, false
	for {
		recs, err := x.feed.next(ctx)
		now := time.Now()
		if err == errUnwritten {
			x.abandon()
			return
		}
		if len(recs) == 0 && errors.Is(err, errSilent) && wait.again() {
			sent = true
			if out.keepAlive(now) != nil {
				x.abandon()
				return
			}
			wait.wrote(now)
			ctx = wait.ctx()
			continue
		}
		x.account.took(len(recs), now)
		s.metrics.pulled.Inc()
		buf := getBuffer()
		if !begun {
			begun = true
			*buf = chunks.AppendStart(*buf)
		}
		failed := false
		for _, rec := range recs {
			*buf = chunks.AppendText(*buf, rec)
			if len(*buf) >= writeMax {
				failed = failed || out.write(*buf, now) != nil
				now = time.Now() // the write may have waited
				*buf = (*buf)[:0]
			}
		}
		if err != nil {
			t, e, gone := x.ended(err)
			if e != nil && !sent && len(recs) == 0 { // the status line has not gone out
				putBuffer(buf)
				delete(h, "X-Accel-Buffering")
				delete(h, "Cache-Control")
				s.reply(x.w, e)
				return
			}
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
		sent = true
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
