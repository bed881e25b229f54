package frontend

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
)

// serveEvents streams the response as server-sent events. It waits with small frames, as generate says.
func (x *exchange) serveEvents() {
	if !x.sent {
		x.eventHeader()
	}
	if sinks, ok := x.stream.(SinkStream); ok && x.conn != nil {
		x.feed = newInline(x, sinks, x.conn)
	}
	for {
		recs, err := x.feed.next(x.patience())
		if !x.event(recs, err) {
			return
		}
	}
}

// beginEvents prepares the writing, and looks after the client from now on, since when the request waits.
func (x *exchange) beginEvents(r *http.Request, now time.Time) {
	x.chunks = openai.NewChunks(x.head, x.usage)
	x.out = x.server.newOutput(x.w)
	x.outDone = x.out.events(r)
	if x.wait = x.server.keeper.watch(x.ctx, now); x.wait != nil {
		x.early.begin(x)
	}
}

// eventHeader prepares the header of a stream of events.
func (x *exchange) eventHeader() {
	h := x.w.Header()
	h["Content-Type"] = sseType
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = no
}

// patience ends when the client has left, or when it must be sent a keep-alive.
func (x *exchange) patience() context.Context {
	if x.wait != nil {
		return x.wait.ctx()
	}
	return x.ctx
}

// event writes what feed.next has brought, and says whether there is more to come.
func (x *exchange) event(recs [][]byte, err error) (more bool) {
	now := time.Now()
	if err == errUnwritten {
		x.abandon()
		return false
	}
	if len(recs) == 0 && errors.Is(err, errSilent) && x.wait.again() {
		x.sent = true
		if x.out.keepAlive(now) != nil {
			x.abandon()
			return false
		}
		x.wait.wrote(now)
		return true
	}
	x.account.took(len(recs), now)
	x.server.metrics.pulled.Inc()
	buf := getBuffer()
	defer putBuffer(buf)
	if !x.begun {
		x.begun = true
		*buf = x.chunks.AppendStart(*buf)
	}
	failed := false
	for _, rec := range recs {
		*buf = x.chunks.AppendText(*buf, rec)
		if len(*buf) >= writeMax {
			failed = failed || x.out.write(*buf, now) != nil
			now = time.Now() // the write may have waited
			*buf = (*buf)[:0]
		}
	}
	if err != nil {
		x.lastEvents(buf, len(recs) == 0, now, err)
		return false
	}
	x.sent = true
	if failed || x.out.write(*buf, now) != nil || x.out.flush() != nil {
		x.abandon()
		return false
	}
	if x.wait != nil {
		x.wait.wrote(now)
	}
	return true
}

// lastEvents ends the response, after what is in buf. With nothing sent and no records in buf the status line can still
// be that of an error.
func (x *exchange) lastEvents(buf *[]byte, empty bool, now time.Time, err error) {
	t, e, gone := x.ended(err)
	switch {
	case gone:
		return
	case e != nil && !x.sent && empty:
		h := x.w.Header()
		delete(h, "X-Accel-Buffering")
		delete(h, "Cache-Control")
		x.server.reply(x.w, e)
		return
	case e != nil:
		*buf = openai.AppendErrorEvent(*buf, e)
	default:
		*buf = x.chunks.AppendFinish(*buf, t.FinishReason)
		if x.usage {
			*buf = x.chunks.AppendUsage(*buf, openai.Usage{Prompt: t.PromptTokens, Completion: t.CompletionTokens})
		}
	}
	*buf = openai.AppendDone(*buf)
	x.lastWrite(*buf, now)
}

// lastWrite has the client count as one that has left when it does not take the end of its answer. There is no flush:
// the server flushes when the handler returns, together with the end of the body. Only over HTTP/1.0 that has no end of
// its own, and a flush that fails there would look like one.
func (x *exchange) lastWrite(p []byte, now time.Time) {
	err := x.out.write(p, now)
	if err == nil && x.noEnd {
		err = x.out.flush()
	}
	if err != nil {
		x.account.gone()
	}
}
