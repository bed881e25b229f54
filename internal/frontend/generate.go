package frontend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/frontend/openai"
	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// generate serves one request for tokens, from its body to its end. Its goroutine waits in here for as long as the
// response lasts: what is needed only before that is done in calls that have returned by then, as large frames below
// the wait would double every open response's stack.
//
// An answer that is given up is aborted: over HTTP/1.1 the connection is reset, over HTTP/2 the stream. It never ends
// as if it were complete.
func (s *Server) generate(w http.ResponseWriter, r *http.Request, id names, k openai.Kind) {
	a := &account{start: time.Now(), endpoint: k.String(), id: id}
	s.metrics.begin(a)
	defer s.metrics.close(a)
	a.trace = s.cfg.Tracer.Request(r.Header, r.URL.Path, id.own, id.client)
	defer func() { a.trace.End(a.status, a.records, a.label) }()
	e, label := s.refusal(w, r)
	if e == nil {
		// The place is taken before the body is read, so that places bound the memory of bodies too.
		e, label = s.admit()
	}
	if e != nil {
		s.refuse(w, a, e, label)
		return
	}
	defer s.release()
	x := &exchange{server: s, account: a, w: w}
	defer x.close()
	if x.open(r, k) {
		if a.stream {
			x.serveEvents()
		} else {
			x.serveReply()
		}
	}
	if a.givenUp() {
		panic(http.ErrAbortHandler)
	}
}

// refuse answers a request that will not be served.
func (s *Server) refuse(w http.ResponseWriter, a *account, e *openai.Error, label string) {
	a.status, a.label = e.Status, label
	s.reply(w, e)
}

// open takes a request as far as its stream; false means that it has been answered, or given up.
func (x *exchange) open(r *http.Request, k openai.Kind) bool {
	s, w, a := x.server, x.w, x.account
	req, e := s.read(w, r, k)
	if e != nil {
		s.refuse(w, a, e, labelValidation)
		return false
	}
	a.stream = req.Stream
	if e, label := s.checkModel(req.Model); e != nil {
		s.refuse(w, a, e, label)
		return false
	}
	a.modelName, a.model = req.Model, s.metrics.model(req.Model)
	a.model.inflight.Inc()
	a.trace.Model(req.Model)

	payload, err := payload(a.id.shown(), &req)
	if err != nil {
		s.refuse(w, a, openai.Invalid("", labelValidation, err.Error()), labelValidation)
		return false
	}
	x.usage = req.IncludeUsage
	x.head = openai.Header{Kind: k, ID: a.id.own, Model: req.Model, Created: a.start.Unix()}
	x.watch(r)
	if req.Stream {
		x.beginEvents(r, a.start)
	}
	st, err := s.cfg.Backend.Open(x.ctx, Call{ID: a.id.own, ClientID: a.id.client, Model: req.Model, Payload: payload,
		FirstRecordTimeout: s.cfg.FirstTokenTimeout, InactivityTimeout: s.cfg.InactivityTimeout, Trace: a.trace})
	x.early.end()
	if err != nil {
		x.openFailed(err)
		return false
	}
	x.stream, x.feed = st, pulled{st}
	a.trace.Stream(st.Worker(), st.NodeName(), st.Plane(), st.Lane())
	if !x.sent {
		h := w.Header()
		h["X-Laneway-Worker"] = []string{st.Worker()}
		h["X-Laneway-Process"] = []string{st.NodeName()}
		h["X-Laneway-Lane"] = []string{st.Plane() + "/" + strconv.Itoa(st.Lane())}
		if n := st.Retries(); n > 0 {
			h["X-Laneway-Retries"] = []string{strconv.Itoa(n)}
		}
	}
	return true
}

// openFailed answers a request that got no record.
func (x *exchange) openFailed(err error) {
	s, a := x.server, x.account
	var e *openai.Error
	switch {
	case x.ctx.Err() == nil:
		var end *EndError
		if errors.As(err, &end) && end.Worker != "" && !x.sent {
			x.w.Header()["X-Laneway-Worker"] = []string{end.Worker}
		}
		e, a.label = s.failure(err)
		s.logFailure(a, e, err)
	case context.Cause(x.ctx) == errCut:
		e, a.label = s.unavailable("the frontend is shutting down: try another one")
	default:
		a.gone()
		return
	}
	a.status = e.Status
	if !x.sent {
		s.reply(x.w, e)
		return
	}
	buf := getBuffer()
	defer putBuffer(buf)
	*buf = openai.AppendDone(openai.AppendErrorEvent(*buf, e))
	x.lastWrite(*buf, time.Now())
}

// logFailure logs what a client was told, with the cause. Overload is no event: the metrics count it.
func (s *Server) logFailure(a *account, e *openai.Error, err error) {
	level := slog.LevelWarn
	if e.Status < 500 || e.Type == openai.TypeOverloaded || e.Type == openai.TypeUnavailable {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "request failed", a.attrs("status", e.Status, "error", err)...)
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// read takes the body within its limits of size and time, and parses it.
func (s *Server) read(w http.ResponseWriter, r *http.Request, k openai.Kind) (openai.Request, *openai.Error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return openai.Request{}, &openai.Error{Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest,
			Code: "unsupported_content_encoding",
			Message: fmt.Sprintf("the body has Content-Encoding %q: send it as plain JSON, without a Content-Encoding",
				clip(coding))}
	}
	limit := int64(s.cfg.MaxBodyBytes)
	tooLarge := &openai.Error{Status: http.StatusRequestEntityTooLarge, Type: openai.TypeInvalidRequest,
		Code:    "body_too_large",
		Message: fmt.Sprintf("the body is larger than %d bytes, the most that is taken", limit)}
	if r.ContentLength > limit {
		w.Header()["Connection"] = []string{"close"}
		return openai.Request{}, tooLarge
	}
	buf := bodies.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= 64<<10 {
			buf.Reset()
			bodies.Put(buf)
		}
	}()
	if r.ContentLength > 0 {
		buf.Grow(int(min(r.ContentLength, 64<<10)) + bytes.MinRead) // what is announced need not come
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		// The body's deadline would look like a client that left.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	var over *http.MaxBytesError
	switch {
	case err == nil:
		return openai.ParseRequest(k, buf.Bytes())
	case errors.As(err, &over):
		return openai.Request{}, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header()["Connection"] = []string{"close"}
		return openai.Request{}, &openai.Error{Status: http.StatusRequestTimeout, Type: openai.TypeInvalidRequest,
			Code:    "body_timeout",
			Message: fmt.Sprintf("the body did not come within %v", s.cfg.BodyTimeout)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return openai.Request{}, openai.Invalid("", "invalid_body", "the body ended before its announced length")
	}
	return openai.Request{}, openai.Invalid("", "invalid_body", "the body could not be read: "+err.Error())
}

// payload is what the worker gets.
func payload(id string, r *openai.Request) ([]byte, error) {
	m := mockproto.Request{ID: id, Model: r.Model, Kind: mockproto.KindChat, PromptTokens: r.PromptTokens(),
		MaxTokens: r.MaxTokens, Stop: r.Stop}
	if r.Kind != openai.Chat {
		m.Kind = mockproto.KindCompletion
	}
	return m.Encode()
}
