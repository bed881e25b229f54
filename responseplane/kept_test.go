package responseplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndedRequestsAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(time.Now, 0)
		old := q.begin(&Request{ID: "a"})
		time.Sleep(10 * time.Minute) // an open one is kept however long
		if got := q.find("a"); len(got) != 1 || got[0] != old {
			t.Fatal("an open request is not found")
		}
		gone := errors.New("gone")
		q.end(old, gone)
		time.Sleep(KeepEnded - time.Nanosecond)
		if got := q.find("a"); len(got) != 1 || got[0].info().State != RequestEnded || got[0].info().Err != gone {
			t.Fatalf("a moment before its time: %+v", got)
		}
		time.Sleep(time.Nanosecond)
		if len(q.find("a")) != 0 {
			t.Error("it is found after its time")
		}
		if open, ended := q.all(); len(open)+len(ended) != 0 {
			t.Errorf("%d open and %d ended are left", len(open), len(ended))
		}
	})
}

// TestAllOfAnIDAreFound: by their own ids, and by what their clients call them, which several may be called.
func TestAllOfAnIDAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(time.Now, 0)
		a := q.begin(&Request{ID: "1", ClientID: "same"})
		time.Sleep(time.Nanosecond)
		b := q.begin(&Request{ID: "2", ClientID: "same"})
		time.Sleep(time.Nanosecond)
		c := q.begin(&Request{ID: "same"})
		q.end(a, nil)
		for id, want := range map[string][]*tracked{"1": {a}, "2": {b}, "same": {c, b, a}, "3": nil, "": nil} {
			if got := q.find(id); !slices.Equal(got, want) {
				t.Errorf("%q finds %d requests, expected %d, the newest first", id, len(got), len(want))
			}
		}
		f := &Frontend{requests: q}
		if newest, n := f.Find("same", 2); n != 3 || len(newest) != 2 || newest[0].ID != "same" ||
			newest[1].ID != "2" || newest[1].ClientID != "same" {
			t.Errorf("%d: %+v", n, newest)
		}
		if i, ok := f.Inspect("same"); !ok || i.ID != "same" {
			t.Errorf("%t %+v", ok, i)
		}
		time.Sleep(KeepEnded)
		if got := q.find("same"); !slices.Equal(got, []*tracked{c, b}) {
			t.Errorf("%d are found once one has been forgotten, expected 2", len(got))
		}
		q.end(b, nil)
		q.end(c, nil)
		if none := q.begin(&Request{}); len(q.find("")) != 0 {
			t.Error("a request without an id is found by none")
		} else {
			q.end(none, nil)
		}
	})
}

func TestEndedRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(time.Now, 0)
		const more = 3000
		for i := range MaxEnded + more {
			q.end(q.begin(&Request{ID: fmt.Sprint(i)}), nil)
			if cap(q.ended) > 4*MaxEnded {
				t.Fatalf("room for %d after %d requests", cap(q.ended), i+1)
			}
		}
		if len(q.find(fmt.Sprint(more-1))) != 0 {
			t.Error("one too many is kept")
		}
		if len(q.find(fmt.Sprint(more))) != 1 || len(q.find(fmt.Sprint(MaxEnded+more-1))) != 1 {
			t.Error("one of the newest has gone")
		}
		if _, ended := q.all(); len(ended) != MaxEnded {
			t.Errorf("%d are kept", len(ended))
		}
	})
}

// TestNoneKept: with KeepEnded off nothing of a request stays after its end.
func TestNoneKept(t *testing.T) {
	q := newRequests(time.Now, -1)
	r := q.begin(&Request{ID: "1"})
	if len(q.find("1")) != 1 {
		t.Error("an open request is not found")
	}
	q.end(r, nil)
	if open, ended := q.all(); len(open) != 0 || len(ended) != 0 || len(q.find("1")) != 0 {
		t.Errorf("%d open and %d ended requests are kept", len(open), len(ended))
	}
	if err := (FrontendConfig{KeepEnded: MaxEnded + 1}).Validate(); !strings.Contains(err.Error(), "KeepEnded") {
		t.Error(err)
	}
}
