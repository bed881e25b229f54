package serving

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/responseplane"
)

// tape is a Writer that keeps what is put.
type tape struct {
	recs    [][]byte
	full    int // so many TryPut find the window full
	trailer []byte
	failure *responseplane.Failure
	ends    int
}

func (w *tape) Put(_ context.Context, rec []byte) error {
	w.recs = append(w.recs, bytes.Clone(rec))
	return nil
}

func (w *tape) TryPut(rec []byte) error {
	if w.full--; w.full >= 0 {
		return responseplane.ErrWindowFull
	}
	return w.Put(context.Background(), rec)
}

func (w *tape) PutComplete(trailer []byte) error { w.ends, w.trailer = w.ends+1, trailer; return nil }

func (w *tape) Fail(f responseplane.Failure) error { w.ends, w.failure = w.ends+1, &f; return nil }

var okHead = Head{Status: 200, Headers: []Header{{"content-type", "text/event-stream"}}}

// read decodes the tape: the head, and the events or pieces.
func (w *tape) read(t *testing.T) (head *Head, out []string, d *Decoder) {
	t.Helper()
	d = new(Decoder)
	for i, rec := range w.recs {
		got, p, err := d.Append(nil, rec)
		if err != nil || (p.Head != nil) != (i == 0) {
			t.Fatalf("record %d: %+v, %v", i, p, err)
		}
		if p.Head != nil {
			head = p.Head
		}
		if p.Kind != KindHead {
			out = append(out, string(got))
		}
	}
	return head, out, d
}

func TestAnswerOfEvents(t *testing.T) {
	for _, delta := range []bool{true, false} {
		w := &tape{}
		a := NewAnswer(w, DialectChat, delta)
		if _, err := a.TryEvent([]byte(chunk)); !errors.Is(err, ErrNoHead) {
			t.Errorf("an event without a head: %v", err)
		}
		if err := a.Head(okHead); err != nil {
			t.Fatal(err)
		}
		if err := a.Head(okHead); !errors.Is(err, ErrTwoHeads) {
			t.Errorf("two heads: %v", err)
		}
		if c, err := a.Event(t.Context(), []byte(": ping")); c != ClassComment || err != nil || a.Begun() {
			t.Errorf("a comment before the first event: %d, %v, begun %v", c, err, a.Begun())
		}
		events := []string{chunk, ": between", strings.Replace(chunk, "one", "two", 1),
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` +
				`"usage":{"prompt_tokens":7,"completion_tokens":2}}`, "data: [DONE]"}
		for i, ev := range events {
			w.full = i % 2 // every second finds the window full once
			_, err := a.TryEvent([]byte(ev))
			if i%2 == 1 {
				if !errors.Is(err, responseplane.ErrWindowFull) {
					t.Errorf("event %d: %v", i, err)
				}
				_, err = a.TryEvent([]byte(ev))
			}
			if err != nil {
				t.Errorf("event %d: %v", i, err)
			}
		}
		if _, err := a.TryEvent([]byte(chunk)); !errors.Is(err, ErrAfter) {
			t.Errorf("an event behind the last: %v", err)
		}
		if err := a.Body(t.Context(), []byte("x")); !errors.Is(err, ErrMixed) {
			t.Errorf("a piece among events: %v", err)
		}
		if !a.Ended() || a.Complete(t.Context()) != nil || w.failure != nil || w.ends != 1 {
			t.Errorf("ended %v, failure %+v, %d ends", a.Ended(), w.failure, w.ends)
		}
		head, got, d := w.read(t)
		if !reflect.DeepEqual(head, &okHead) || !reflect.DeepEqual(got, events) || !d.Ended() {
			t.Errorf("got %+v, %q", head, got)
		}
		tr, err := DecodeTrailer(w.trailer)
		if err != nil || tr.Usage == nil || *tr.Usage != (Usage{7, 2}) || !reflect.DeepEqual(tr.FinishReasons,
			[]string{"stop"}) {
			t.Errorf("trailer %+v, %v", tr, err)
		}
	}
}

func TestAnswerThatIsABody(t *testing.T) {
	w := &tape{}
	a := NewAnswer(w, DialectChat, true)
	if err := a.Head(Head{Status: 404}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"{", "", "}"} {
		if err := a.Body(t.Context(), []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.TryEvent([]byte(chunk)); !errors.Is(err, ErrMixed) {
		t.Errorf("an event behind a piece: %v", err)
	}
	if err := a.Complete(t.Context()); err != nil || w.failure != nil {
		t.Errorf("%v, %+v", err, w.failure)
	}
	if head, got, d := w.read(t); head.Status != 404 || strings.Join(got, "") != "{}" || d.Ended() {
		t.Errorf("got %+v, %q", head, got)
	}
}

func TestAnswerOfAHeadAlone(t *testing.T) {
	w := &tape{}
	a := NewAnswer(w, DialectOther, true)
	if err := errors.Join(a.Head(Head{Status: 204}), a.Complete(t.Context())); err != nil || len(w.recs) != 1 {
		t.Fatalf("%v, %d records", err, len(w.recs))
	}
	if head, got, _ := w.read(t); head.Status != 204 || len(got) > 0 {
		t.Errorf("got %+v, %q", head, got)
	}
}

// TestTruncatedIsNeverComplete: Complete of what the engine did not end as its API says is a failure.
func TestTruncatedIsNeverComplete(t *testing.T) {
	for name, c := range map[string]struct {
		d      Dialect
		events []string
		retry  bool
	}{
		"no answer":           {DialectChat, nil, true},
		"no last event":       {DialectChat, []string{chunk}, false},
		"an error, then done": {DialectChat, []string{chunk, `data: {"error":{}}`, "data: [DONE]"}, false},
		"an error, other":     {DialectOther, []string{`data: {"error":{}}`}, false},
		"a failed response":   {DialectResponses, []string{"event: response.failed\ndata: {}"}, false},
		"half a message":      {DialectMessages, []string{"event: message_start\ndata: {}"}, false},
	} {
		w := &tape{}
		a := NewAnswer(w, c.d, true)
		if c.events != nil {
			if err := a.Head(okHead); err != nil {
				t.Fatal(err)
			}
		}
		for _, ev := range c.events {
			if _, err := a.TryEvent([]byte(ev)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		err := a.Complete(t.Context())
		if err != nil || w.failure == nil || w.trailer != nil || w.failure.Retryable != c.retry || w.ends != 1 {
			t.Errorf("%s: %v, %+v", name, err, w.failure)
		}
		if _, got, _ := w.read(t); len(got) != len(c.events) {
			t.Errorf("%s: the client sees %q", name, got)
		}
	}
}

func TestRefusalCarriesTheEnginesAnswer(t *testing.T) {
	w := &tape{}
	head := Head{429, []Header{{"retry-after", "3"}}}
	if err := NewAnswer(w, DialectChat, true).Refuse(head, []byte("slow down")); err != nil || !w.failure.Retryable {
		t.Fatalf("%v, %+v", err, w.failure)
	}
	tr, err := DecodeTrailer(w.failure.Trailer)
	if err != nil || tr.Answer == nil || !reflect.DeepEqual(tr.Answer.Head, head) ||
		string(tr.Answer.Body) != "slow down" {
		t.Errorf("got %+v, %v", tr.Answer, err)
	}

	w = &tape{}
	if err := NewAnswer(w, DialectChat, true).Refuse(head, make([]byte, MaxTrailer)); err != nil {
		t.Fatal(err)
	}
	if tr, err = DecodeTrailer(w.failure.Trailer); err != nil || len(tr.Answer.Body) > 0 ||
		!reflect.DeepEqual(tr.Answer.Head, head) {
		t.Errorf("a body that is too long: %+v, %v", tr.Answer, err)
	}

	w = &tape{}
	a := NewAnswer(w, DialectChat, true)
	if err := a.Head(okHead); err != nil {
		t.Fatal(err)
	}
	if _, err := a.TryEvent([]byte(chunk)); err != nil {
		t.Fatal(err)
	}
	if err := a.Refuse(head, nil); err != nil || w.failure.Retryable || len(w.failure.Trailer) > 0 {
		t.Errorf("an answer that has begun: %v, %+v", err, w.failure)
	}
}

func TestTrailersThatDoNotHold(t *testing.T) {
	long := Trailer{Usage: &Usage{1, 2}, FinishReasons: make([]string, 1000),
		Answer: &EngineAnswer{Head{503, []Header{{"x", strings.Repeat("y", MaxTrailer)}}}, nil}}
	for i := range long.FinishReasons {
		long.FinishReasons[i] = strings.Repeat("r", 1000)
	}
	b := long.Append(nil)
	if got, err := DecodeTrailer(b); err != nil || len(b) > MaxTrailer || got.Answer.Status != 503 ||
		len(got.FinishReasons) != maxChoices {
		t.Errorf("%d bytes, %+v, %v", len(b), got.Answer, err)
	}
	if got, err := DecodeTrailer([]byte{99, 0, 1, 7}); err != nil || !reflect.DeepEqual(got, Trailer{}) {
		t.Errorf("an unknown field: %+v, %v", got, err)
	}
	for _, bad := range [][]byte{{1}, {1, 0, 16}, {1, 0, 1, 0}, {1, 0, 17, 17: 0, 19: 0}, {2, 0, 1, 9},
		{3, 0, 2, 0, 1}} {
		if _, err := DecodeTrailer(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// FuzzTrailer: what is read and written again reads the same.
func FuzzTrailer(f *testing.F) {
	for _, tr := range goldenTrailers() {
		f.Add(tr.Append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		tr, err := DecodeTrailer(p)
		if err != nil || len(p) > MaxTrailer {
			return
		}
		for _, s := range tr.FinishReasons {
			if len(s) > maxReason {
				return // is cut
			}
		}
		again, err := DecodeTrailer(tr.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(tr.FinishReasons) == 0 {
			tr.FinishReasons, again.FinishReasons = nil, nil
		}
		if tr.Answer != nil && again.Answer != nil && len(again.Answer.Body) == 0 && len(tr.Answer.Body) > 0 {
			return // did not fit beside the rest
		}
		if !reflect.DeepEqual(tr, again) && !(tr.Answer != nil && len(tr.Answer.Body) == 0 &&
			len(again.Answer.Body) == 0) {
			t.Fatalf("%+v is read again as %+v", tr, again)
		}
	})
}

// count is a Writer that keeps nothing.
type count struct {
	tape
	n int
}

func (w *count) Put(context.Context, []byte) error { w.n++; return nil }
func (w *count) TryPut([]byte) error               { w.n++; return nil }

func TestAnswerAllocatesNothingPerEvent(t *testing.T) {
	w := &count{}
	a := NewAnswer(w, DialectChat, true)
	if err := a.Head(okHead); err != nil {
		t.Fatal(err)
	}
	ctx, event := t.Context(), []byte(chunk)
	put := func() {
		if _, err := a.TryEvent(event); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Event(ctx, event); err != nil {
			t.Fatal(err)
		}
	}
	put()
	if n := testing.AllocsPerRun(100, put); n != 0 || w.n < 200 {
		t.Errorf("%v allocations for two events, %d records", n, w.n)
	}
}
