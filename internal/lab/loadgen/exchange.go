package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

// exchange is one request and its response. It turns bytes into a row. It belongs to one connection's goroutine or
// loop, which holds the lock of l while it calls.
type exchange struct {
	e *engine
	l *local

	row    report.Row
	osl    int
	resp   response
	shape  shape
	text   tokentext.Verifier
	audit  bool
	stream bool   // Content-Type says event stream
	length bool   // the answer was ended by the limit on its tokens
	saw    bool   // the answer's last event
	failed bool   // an error event came
	opened uint64 // choices seen, a bit each
	done   uint64 // those with a finish reason
	said   string // what the server, or this side, says of the failure
	steady bool   // its gaps count in the steady window
	heard  bool   // any byte of the response
	ended  bool   // the row was handed in
	prev   int64
	now    int64  // when the bytes that are being read came
	respID []byte // x-request-id of the response
}

// begin makes x the exchange of a job.
func (x *exchange) begin(j job) {
	*x = exchange{e: x.e, l: x.l, osl: j.osl, resp: x.resp, shape: x.shape, respID: x.respID[:0]}
	x.resp.reset()
	x.shape.reset()
	x.row = report.Row{
		ID: x.e.requestID(j.seq), Phase: j.phase, Intended: j.intended, Sent: report.Absent, First: report.Absent,
		Last: report.Absent, End: report.Absent,
		OutputTokens: report.Absent, Wrong: report.Absent,
	}
	x.e.open.Add(1)
}

// sent stamps the moment before the request's first byte was given to the kernel. A request that is sent again keeps
// its first stamp.
func (x *exchange) sent(now int64) {
	if x.row.Sent != report.Absent {
		return
	}
	x.row.Sent = now
	if x.row.Phase == report.PhaseMeasured {
		x.steady = x.e.steadyAt(now)
	}
}

// read takes bytes of the response that came at now. It returns true when the exchange has ended; x.keepable then says
// whether the connection can be used again.
func (x *exchange) read(p []byte, now int64) (ended bool) {
	x.heard, x.now = true, now
	err := x.resp.feed(p, x)
	switch {
	case err == errExtraBytes && x.resp.done(): // the response stands; the connection does not
		x.finish(now)
	case err != nil:
		x.resp.keep = false
		x.why(err)
		x.end(report.EndProtocol, "", now)
	case x.resp.done():
		x.finish(now)
	}
	return x.ended
}

// complete tells whether everything of the response that counts was read, though its last bytes may be missing.
func (x *exchange) complete() bool { return x.saw }

// keepable tells whether the connection can carry another request.
func (x *exchange) keepable() bool { return x.resp.done() && x.resp.keep }

// closed takes the connection's end. err is nil for an orderly one.
func (x *exchange) closed(err error, now int64) {
	x.now = now
	if x.resp.eof(x) == nil {
		x.finish(now)
		return
	}
	x.resp.keep = false
	if x.saw { // only the end of the last chunk is missing
		x.finish(x.row.End)
		return
	}
	if err == nil {
		err = errClosed
	}
	x.why(err)
	x.end(report.EndTruncated, "", now) // for a reset too: what the client lacks is the end
}

// broke ends the exchange for a reason on this side: no connection, the timeout, an interrupt. err may be nil.
func (x *exchange) broke(end string, err error, now int64) {
	x.resp.keep = false
	x.why(err)
	if x.saw {
		x.finish(x.row.End)
		return
	}
	x.end(end, "", now)
}

// why notes an error of this side as what is said of the failure, unless the server said something itself.
func (x *exchange) why(err error) {
	if x.said == "" && err != nil {
		x.said = err.Error()
	}
}

// finish ends an exchange whose response was read.
func (x *exchange) finish(now int64) {
	switch {
	case x.resp.status >= 400:
		kind, said := errorOf(x.resp.plain)
		if x.said = said; kind == "" {
			kind = "http_" + strconv.Itoa(x.resp.status)
		}
		x.end(report.EndFailed, kind, now)
	case x.failed:
		x.end(report.EndFailed, x.row.ErrorType, now)
	case x.resp.status != 200 || !x.stream:
		_, x.said = errorOf(x.resp.plain)
		x.end(report.EndProtocol, "not_a_stream", now)
	case !x.saw:
		x.end(report.EndTruncated, "", now)
	case x.e.target.api.listed && (x.opened == 0 || x.done != x.opened):
		x.end(report.EndTruncated, "no_finish_reason", now)
	default:
		x.end(report.EndComplete, "", now)
	}
}

// end hands the row in, once.
func (x *exchange) end(how, errType string, now int64) {
	if x.ended {
		return
	}
	x.ended = true
	r := &x.row
	if x.failed { // the server has said why, whatever became of the connection then
		how, errType = report.EndFailed, r.ErrorType
	}
	if r.End == report.Absent {
		r.End = now
	}
	r.Ended, r.Status = how, x.resp.status
	if how != report.EndComplete {
		if r.ErrorType = errType; errType == "" {
			r.ErrorType = how
		}
	}
	if x.audit {
		tokens := -1
		if how == report.EndComplete {
			tokens = r.OutputTokens // Absent is the verifier's "did not say"
		}
		r.Wrong = x.text.Finish(tokens)
		if how == report.EndComplete && x.length && r.OutputTokens >= 0 && r.OutputTokens != x.osl {
			// The engine ends at max_tokens and says so: a response of another length lost or gained tokens unseen.
			r.Wrong += max(x.osl-r.OutputTokens, r.OutputTokens-x.osl)
		}
		if r.Wrong > 0 {
			x.e.warn("wrong tokens", "request", r.ID, "wrong", r.Wrong, "first_at", x.text.FirstWrong(), "worker",
				r.Worker, "lane", r.Lane)
		}
	}
	x.e.hand(*r, x.said)
}

// header implements handler.
func (x *exchange) header(name, value []byte) {
	switch len(name) {
	case 12:
		if equalFold(name, "content-type") {
			kind, _, _ := bytes.Cut(value, []byte{';'})
			x.stream = equalFold(bytes.TrimSpace(kind), "text/event-stream")
		} else if equalFold(name, "x-request-id") {
			x.respID = append(x.respID[:0], value...)
		}
	case 14:
		if equalFold(name, "x-laneway-lane") {
			x.row.Lane = x.l.intern(value)
		}
	case 16:
		if equalFold(name, "x-laneway-worker") {
			x.row.Worker = x.l.intern(value)
		}
	case 17:
		if equalFold(name, "x-laneway-process") {
			x.row.Process = x.l.intern(value)
		}
	}
}

// headersDone implements handler.
func (x *exchange) headersDone(status int) bool {
	switch x.e.cfg.Audit {
	case AuditOn:
		x.audit = status == 200
	case AuditAuto:
		x.audit = status == 200 && x.row.Worker != ""
	}
	if x.audit {
		id := x.row.ID
		if len(x.respID) > 0 && string(x.respID) != id { // the server goes by an id of its own
			id = string(x.respID)
		}
		x.text = tokentext.NewVerifier(id)
	}
	return status == 200 && x.stream
}

// event implements handler.
func (x *exchange) event(data []byte, failure bool) error {
	if x.saw {
		return nil // nothing counts after the last event
	}
	api := x.e.target.api
	if failure {
		kind, said := errorOf(data)
		x.fail([]byte(kind), said)
		return nil
	}
	if string(data) == "[DONE]" {
		if api.listed { // the other APIs end with an event of their own; a server that sends both has said so before
			x.last()
		}
		return nil
	}
	if text, ok := x.shape.content(data); ok {
		x.content(text, report.Absent)
		return nil
	}
	c, err := api.scan(data)
	if err != nil {
		return err
	}
	x.shape.learn(data, c)
	if c.tokens >= 0 {
		x.row.OutputTokens = c.tokens
	}
	x.length = x.length || c.length
	x.opened |= c.opened
	x.done |= c.done
	if len(c.content) > 0 {
		x.content(c.content, c.tokens)
	}
	if c.failed {
		kind := plain(c.kind)
		if len(kind) == 0 {
			kind = plain(c.code)
		}
		x.fail(kind, string(plain(c.said)))
	}
	if c.last {
		x.last()
	}
	return nil
}

// last notes that the event which ends an answer has come.
func (x *exchange) last() {
	x.saw = true
	x.row.End = x.now
}

// fail notes that the answer holds an error. The first one counts.
func (x *exchange) fail(kind []byte, said string) {
	if !x.failed {
		x.failed, x.said, x.row.ErrorType = true, said, x.l.intern(kind)
	}
}

// content takes the text of one chunk, as it stands between its quotes. tokens is how many the answer has with it,
// where the server says that with each chunk.
func (x *exchange) content(text []byte, tokens int) {
	x.row.Chunks++
	x.row.Last = x.now
	x.l.chunk(x.now)
	if x.row.First == report.Absent {
		x.row.First = x.now
	} else if x.row.Phase == report.PhaseMeasured {
		x.l.gap(x.now-x.prev, x.steady)
	}
	x.prev = x.now
	if x.audit {
		x.text.Write(plain(text))
	}
	if x.row.Chunks > 1 {
		return
	}
	if n, right := x.text.Right(); x.audit && right && tokens < 0 {
		tokens = n
	}
	if tokens > 0 {
		x.row.FirstTokens = tokens
	}
}

// errorOf finds the type (or the code) and the message of an error in a body or an event. Text of another kind is the
// message itself.
func errorOf(body []byte) (kind, said string) {
	type object struct {
		Type, Message, Code, Detail any
		Error                       json.RawMessage
	}
	var o object
	if json.Unmarshal(body, &o) != nil {
		return "", string(body)
	}
	if len(o.Error) > 0 && string(o.Error) != "null" {
		kind, said = errorOf(o.Error)
		var text string
		if json.Unmarshal(o.Error, &text) == nil {
			said = text
		}
		return kind, said
	}
	text := func(values ...any) string {
		for _, v := range values {
			if s, ok := v.(string); ok && s != "" && s != "error" { // "error" says that it is one, not which
				return s
			}
		}
		return ""
	}
	if said = text(o.Message, o.Detail); said == "" {
		said = string(body)
	}
	return text(o.Type, o.Code), said
}

// endOf names the end that an error of this side stands for.
func endOf(ctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil:
		return report.EndCanceled
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return report.EndTimeout
	}
	return report.EndConnect
}
