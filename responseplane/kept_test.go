package responseplane

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndedRequestsAreKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(time.Now)
		old := q.begin("a", "m")
		time.Sleep(10 * time.Minute) // an open one is kept however long
		if q.find("a") != old {
			t.Fatal("an open request is not found")
		}
		gone := errors.New("gone")
		q.end(old, gone)
		time.Sleep(KeepEnded - time.Nanosecond)
		if got := q.find("a"); got != old || got.info().State != RequestEnded || got.info().Err != gone {
			t.Fatalf("a moment before its time: %+v", got)
		}
		time.Sleep(time.Nanosecond)
		if q.find("a") != nil {
			t.Error("it is found after its time")
		}
		if open, ended := q.all(); len(open)+len(ended)+len(q.byID) != 0 {
			t.Errorf("%d open, %d ended and %d ids are left", len(open), len(ended), len(q.byID))
		}
	})
}

func TestNewestOfAnIDIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(time.Now)
		a, b := q.begin("same", "m"), q.begin("same", "m")
		q.end(a, nil)
		time.Sleep(KeepEnded + 1)
		if q.find("same") != b {
			t.Error("the end of the older one took the newer one's id")
		}
		q.end(b, nil)
		if q.find("same") != b {
			t.Error("the newer one is not kept")
		}
		none := q.begin("", "m")
		if q.find("") != nil {
			t.Error("a request without an id is found by none")
		}
		q.end(none, nil)
	})
}

func TestEndedRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newRequests(time.Now)
		const more = 3000
		for i := range MaxEnded + more {
			q.end(q.begin(fmt.Sprint(i), "m"), nil)
			if len(q.byID) > MaxEnded || cap(q.ended) > 4*MaxEnded {
				t.Fatalf("%d ids, room for %d after %d requests", len(q.byID), cap(q.ended), i+1)
			}
		}
		if q.find(fmt.Sprint(more-1)) != nil {
			t.Error("one too many is kept")
		}
		if q.find(fmt.Sprint(more)) == nil || q.find(fmt.Sprint(MaxEnded+more-1)) == nil {
			t.Error("one of the newest has gone")
		}
		if _, ended := q.all(); len(ended) != MaxEnded {
			t.Errorf("%d are kept", len(ended))
		}
	})
}
