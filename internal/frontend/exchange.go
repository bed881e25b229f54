package frontend

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
	"github.com/laneway-ai/laneway/internal/frontend/outpath"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// exchange is one request for tokens and its response on the way from a Stream to a client. It belongs to the request's
// goroutine, and to early and its stream's sink as they say.
type exchange struct {
	server  *Server
	account *account
	w       http.ResponseWriter
	ctx     context.Context // the request's: it ends when the client leaves
	cancel  context.CancelCauseFunc
	// the connection of an HTTP/1 request, which watches the client; nil = the HTTP server alone does
	answers *outpath.Conn
	stream  Stream // nil until there is one
	head    openai.Header
	feed    feed
	conn    *outpath.Conn // nil when a sink must not write to it
	usage   bool          // the client wants a last chunk with the usage
	noEnd   bool          // over HTTP/1.0: a stream of events ends with its connection

	// Of a stream of events; they are early's while the stream is opened, and the sink's while feed.next waits.
	chunks  openai.Chunks
	out     output
	outDone func()  // nil until out is used
	wait    *waiter // nil without keep-alive
	early   early
	begun   bool // the opening chunk has been made
	sent    bool // something has gone out, so the status has
}

// watch has the exchange end when its client leaves. A client that has closed its sending half only counts as one that
// has left, as it does for net/http.
func (x *exchange) watch(r *http.Request) {
	x.ctx, x.cancel = context.WithCancelCause(r.Context())
	if r.ProtoMajor != 1 { // HTTP/2 reads all the time
		return
	}
	x.noEnd = r.ProtoMinor == 0
	if x.answers = outpath.From(x.ctx); x.answers != nil {
		x.answers.Begin(func() { x.cancel(errLeft) })
		if x.server.cfg.OutPath != OutPull { // on HTTP/2 a write waits for the client's flow control
			x.conn = x.answers
		}
	}
}

// close ends what the exchange has begun. It must be called, also after a panic.
func (x *exchange) close() {
	x.early.end()
	if x.outDone != nil {
		x.outDone()
	}
	if x.wait != nil {
		x.wait.leave()
	}
	if x.stream != nil {
		_ = x.stream.Close()
	}
	if x.cancel == nil {
		return
	}
	x.cancel(nil)
	switch {
	case x.answers == nil:
	case x.account.givenUp():
		// Here, below TLS, which would tell the client that this is the end.
		_ = x.answers.Close()
	default:
		x.answers.End()
	}
}

// finished reads what a complete response's end carried. One record is one token, so a worker that ends early cannot
// pass it off as all there was.
func (x *exchange) finished() (mockproto.Trailer, error) {
	t, err := mockproto.DecodeTrailer(x.stream.Trailer())
	if err != nil {
		return t, &EndError{End: EndProtocol, Text: "its end could not be read", Worker: x.stream.Worker(), Err: err}
	}
	if t.CompletionTokens != x.account.records {
		return t, &EndError{End: EndProtocol, Worker: x.stream.Worker(),
			Text: fmt.Sprintf("it was to have %d tokens and ended as complete after %d", t.CompletionTokens,
				x.account.records)}
	}
	return t, nil
}

// ended sorts out why there are no more records. When the client is there to be told, it returns what to tell (nil: the
// response is complete, t is its trailer); gone says that nobody is there.
func (x *exchange) ended(err error) (t mockproto.Trailer, e *openai.Error, gone bool) {
	s := x.server
	if err == io.EOF {
		if t, err = x.finished(); err == nil {
			x.account.status, x.account.label = http.StatusOK, ""
			return t, nil, false
		}
	} else if x.ctx.Err() != nil {
		if context.Cause(x.ctx) != errCut {
			x.abandon()
			return t, nil, true
		}
		x.stream.Kill()
		e, x.account.label = s.unavailable("the frontend is shutting down")
		x.account.status = e.Status
		return t, e, false
	}
	e, x.account.label = s.failure(err)
	x.account.status = e.Status
	s.logFailure(x.account, e, err)
	return t, e, false
}

// abandon ends the worker's work for a client that has left.
func (x *exchange) abandon() {
	x.account.gone()
	s := x.server
	s.log.Debug("client left", x.account.attrs("worker", x.stream.Worker())...)
	if !s.cfg.StopOnDisconnect {
		x.stream.Kill()
		return
	}
	x.feed.quiet()
	x.stream.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), s.cfg.StopGrace)
	defer cancel()
	for { // the last output is nobody's, but its tokens were made and count
		recs, err := x.feed.next(ctx)
		x.account.took(len(recs), time.Now())
		if err != nil {
			return
		}
	}
}

// serveReply collects the response and sends it as one JSON object.
func (x *exchange) serveReply() {
	s := x.server
	buf := getBuffer()
	defer func() { putBuffer(buf) }()
	*buf = openai.AppendReplyStart(*buf, x.head)
	for {
		recs, err := x.feed.next(x.ctx)
		if len(recs) > 0 {
			x.account.took(len(recs), time.Now())
			for _, rec := range recs {
				*buf = openai.AppendEscaped(*buf, rec)
			}
		}
		if err == nil && len(*buf) > s.cfg.MaxReplyBytes {
			x.stream.Kill()
			err = &EndError{End: EndFailed, Code: CodeInternal,
				Text: "the reply is too large to be sent in one piece: use stream", Worker: x.stream.Worker()}
		}
		if err == nil {
			continue
		}
		t, e, gone := x.ended(err)
		if gone {
			return
		}
		if e != nil {
			s.reply(x.w, e)
			return
		}
		*buf = openai.AppendReplyEnd(*buf, x.head.Kind, t.FinishReason, openai.Usage{Prompt: t.PromptTokens,
			Completion: t.CompletionTokens})
		if s.writeJSON(x.w, http.StatusOK, *buf) != nil {
			x.account.gone()
		}
		return
	}
}
