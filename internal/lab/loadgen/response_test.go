package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// recorder is a handler that keeps what it was given.
type recorder struct {
	headers []string
	status  int
	sse     bool
	events  []string
}

func (r *recorder) header(name, value []byte) {
	r.headers = append(r.headers, string(name)+"="+string(value))
}
func (r *recorder) headersDone(status int) bool {
	r.status = status
	for _, h := range r.headers {
		r.sse = r.sse || strings.EqualFold(h, "content-type=text/event-stream")
	}
	return r.sse
}
func (r *recorder) event(data []byte, failure bool) error {
	if failure {
		data = append([]byte("FAILURE "), data...)
	}
	r.events = append(r.events, string(data))
	return nil
}

// outcome is all that reading a response gives.
type outcome struct {
	rec   recorder
	plain string
	done  bool
	keep  bool
	err   error
}

// parse feeds the pieces, and then the connection's end when eof is set.
func parse(eof bool, pieces ...[]byte) outcome {
	var r response
	var o outcome
	for _, p := range pieces {
		if o.err = r.feed(bytes.Clone(p), &o.rec); o.err != nil {
			break
		}
	}
	if eof && o.err == nil {
		o.err = r.eof(&o.rec)
	}
	o.plain, o.done, o.keep = string(r.plain), r.done(), r.keep
	return o
}

func chunked(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		ext := ""
		if i%2 == 1 {
			ext = ";x=y"
		}
		fmt.Fprintf(&b, "%X%s\r\n%s\r\n", len(p), ext, p)
	}
	return b.String() + "0\r\nTrailer: 1\r\n\r\n"
}

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: r\r\n"

// responses are what servers send; the table's expectations were written by hand.
var responses = []struct {
	name   string
	raw    string
	eof    bool
	status int
	events []string
	plain  string
	done   bool
	keep   bool
	err    error
}{
	{name: "chunked", raw: sseHead + "Transfer-Encoding: chunked\r\n\r\n" + chunked("data: {\"a\":1}\n\n",
		"data: two\n\ndata: three\n\n", "data: [DONE]\n\n"),
		status: 200, events: []string{`{"a":1}`, "two", "three", "[DONE]"}, done: true, keep: true},
	{name: "events across chunks", raw: sseHead + "Transfer-Encoding: chunked\r\n\r\n" + chunked("da", "ta: {\"a\"",
		":1}", "\n", "\nda", "ta: x\n\n"),
		status: 200, events: []string{`{"a":1}`, "x"}, done: true, keep: true},
	{name: "length", raw: sseHead + "Content-Length: 9\r\n\r\ndata: x\n\n", status: 200, events: []string{"x"},
		done: true, keep: true},
	{name: "until close", raw: sseHead + "\r\ndata: x\n\ndata: y\n\n", eof: true, status: 200,
		events: []string{"x", "y"}, done: true},
	{name: "last event without its blank line", raw: sseHead + "\r\ndata: x\n\ndata: [DONE]", eof: true, status: 200,
		events: []string{"x", "[DONE]"}, done: true},
	{name: "CRLF, comments, other fields, several lines", raw: sseHead +
		"\r\n\xef\xbb\xbf: hi\r\n\r\nevent: e\r\nid: 1\r\ndata: a\r\ndata:b\r\ndata\r\n\r\n: ping\n\nretry: " +
		"3\n\ndatabase: no\n\ndata:  c\n\n", eof: true,
		status: 200, events: []string{"a\nb\n", " c"}, done: true},
	{name: "events named error", raw: sseHead +
		"\r\nevent: error\ndata: x\n\ndata: y\n\ndata: z\nevent:error\n\nevent: error\n\nevent: message\ndata: " +
		"u\n\nevent: error", eof: true,
		status: 200, events: []string{"FAILURE x", "y", "FAILURE z", "FAILURE ", "u", "FAILURE "}, done: true},
	{name: "connection close", raw: sseHead + "Connection: close\r\nContent-Length: 9\r\n\r\ndata: x\n\n", status: 200,
		events: []string{"x"}, done: true},
	{name: "HTTP/1.0", raw: strings.Replace(sseHead, "1.1", "1.0", 1) + "Content-Length: 9\r\n\r\ndata: x\n\n",
		status: 200, events: []string{"x"}, done: true},
	{name: "interim response", raw: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + sseHead +
		"Content-Length: 9\r\n\r\ndata: x\n\n", status: 200, events: []string{"x"}, done: true, keep: true},
	{name: "error body", raw: "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}", status: 429, plain: "{}",
		done: true, keep: true},
	{name: "no content", raw: "HTTP/1.1 204\r\n\r\n", status: 204, done: true, keep: true},
	{name: "empty body", raw: "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", status: 500, done: true, keep: true},
	{name: "cut in a chunk", raw: sseHead + "Transfer-Encoding: chunked\r\n\r\n40\r\ndata: x\n\n", eof: true,
		status: 200, events: []string{"x"}, err: errClosed},
	{name: "cut in the headers", raw: sseHead, eof: true, err: errClosed},
	{name: "not HTTP", raw: "SSH-2.0-OpenSSH_9.6\r\n", err: errNotHTTP},
	{name: "bad chunk size", raw: sseHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", status: 200, err: errBadChunk},
	{name: "chunk longer than its size", raw: sseHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", status: 200,
		err: errBadChunk},
	{name: "two lengths", raw: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", err: errBadLength},
	{name: "bytes after the end", raw: sseHead + "Content-Length: 9\r\n\r\ndata: x\n\nmore", status: 200,
		events: []string{"x"}, done: true, err: errExtraBytes},
	{name: "endless header", raw: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", maxHeaderLine+10), err: errLongLine},
}

func TestResponses(t *testing.T) {
	for _, c := range responses {
		t.Run(c.name, func(t *testing.T) {
			o := parse(c.eof, []byte(c.raw))
			if !errors.Is(o.err, c.err) || o.rec.status != c.status || !reflect.DeepEqual(o.rec.events, c.events) ||
				o.plain != c.plain || o.done != c.done || o.keep != c.keep && c.err == nil {
				t.Errorf("got %+v", o)
			}
		})
	}
}

// TestResponsesCutAnywhere cuts each response at every offset, and into single bytes: the pieces must read like the
// whole.
func TestResponsesCutAnywhere(t *testing.T) {
	for _, c := range responses {
		t.Run(c.name, func(t *testing.T) {
			raw := []byte(c.raw)
			want := parse(c.eof, raw)
			same := func(what string, got outcome) {
				if want.err != nil && got.err != nil { // what stood before the fault may be more or less
					got.rec, got.plain, got.keep = want.rec, want.plain, want.keep
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: got %+v\nwant %+v", what, got, want)
				}
			}
			single := make([][]byte, len(raw))
			for i := range raw {
				single[i] = raw[i : i+1]
			}
			same("single bytes", parse(c.eof, single...))
			if len(raw) > 4096 {
				return
			}
			for i := range raw {
				same(fmt.Sprintf("cut at %d", i), parse(c.eof, raw[:i], raw[i:]))
			}
		})
	}
}

// TestReaderIsReused holds that a response leaves nothing behind for the next one.
func TestReaderIsReused(t *testing.T) {
	var r response
	for _, c := range responses {
		var rec recorder
		r.reset()
		err := r.feed([]byte(c.raw), &rec)
		if err == nil && c.eof {
			err = r.eof(&rec)
		}
		if !errors.Is(err, c.err) || !reflect.DeepEqual(rec.events, c.events) {
			t.Errorf("%s after another: %v %q", c.name, err, rec.events)
		}
	}
}

// FuzzResponse holds that no bytes make the reader panic, and that cuts do not matter.
func FuzzResponse(f *testing.F) {
	for _, c := range responses {
		if len(c.raw) < 2000 {
			f.Add([]byte(c.raw), uint16(len(c.raw)/2))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		k := min(int(cut), len(raw))
		a, b := parse(true, raw), parse(true, raw[:k], raw[k:])
		if (a.err == nil) != (b.err == nil) || a.err == nil && !reflect.DeepEqual(a, b) {
			t.Fatalf("whole %+v\ncut at %d %+v", a, k, b)
		}
	})
}

// TestReadingAllocatesNothing: an event must cost no memory, or a run measures its own garbage collector.
func TestReadingAllocatesNothing(t *testing.T) {
	s := newServer(t, nil)
	e, err := newEngine(t.Context(), Config{URL: redact.New(s.URL), Requests: 1}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	x := exchange{e: e, l: newLocal()}
	x.begin(job{phase: "measured", osl: 1 << 20})
	x.sent(1)
	x.read([]byte(sseHead+"X-Laneway-Worker: w\r\nTransfer-Encoding: chunked\r\n\r\n"), 2)
	ev := "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" abcD\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
	piece := []byte(fmt.Sprintf("%x\r\n%s\r\n", len(ev), ev))
	now := int64(3)
	if n := testing.AllocsPerRun(1000, func() { now += 1000; x.read(piece, now) }); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
	if x.row.Chunks != 1001 || x.ended {
		t.Errorf("%d chunks, ended %v", x.row.Chunks, x.ended)
	}
}

func BenchmarkReadEvent(b *testing.B) {
	e := &engine{target: &target{api: chatAPI}, cfg: Config{}.withDefaults(),
		plan: newPlan(Config{Concurrency: 1}.withDefaults())}
	x := exchange{e: e, l: newLocal()}
	x.begin(job{phase: "measured", osl: 1 << 20})
	x.sent(1)
	x.read([]byte(sseHead+"Transfer-Encoding: chunked\r\n\r\n"), 2)
	ev := "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" abcD\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
	piece := []byte(fmt.Sprintf("%x\r\n%s\r\n", len(ev), ev))
	now := int64(3)
	for b.Loop() {
		now += 1000
		x.read(piece, now)
	}
	if x.ended {
		b.Fatal(http.ErrBodyNotAllowed)
	}
}
