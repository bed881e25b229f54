package admin

import (
	"net/http/httptest"
	"reflect"
	"testing"
	"time"
)

// TestEmptyListsAreNotNull, wherever they stand; what may be absent stays absent, and the value that was given is not
// touched.
func TestEmptyListsAreNotNull(t *testing.T) {
	type inner struct {
		List []string
		By   map[string][]int
	}
	type view struct {
		At    time.Time
		Names []string
		In    inner
		Ins   []inner
		Map   map[string]inner
		Ptr   *inner
		Any   any
		Gone  []string `json:"gone,omitempty"`
		None  *inner   `json:"none,omitempty"`
		//lint:ignore U1000 A field that is not exported must not be tripped over.
		own []string
	}
	build := func() view {
		return view{At: time.Unix(0, 0).UTC(), Ins: []inner{{}},
			Map: map[string]inner{"a": {By: map[string][]int{"b": nil}}}, Ptr: &inner{}, Any: inner{}}
	}
	v := build()
	w := httptest.NewRecorder()
	WriteJSON(w, v)
	const want = `{
 "At": "1970-01-01T00:00:00Z",
 "Names": [],
 "In": {
  "List": [],
  "By": {}
 },
 "Ins": [
  {
   "List": [],
   "By": {}
  }
 ],
 "Map": {
  "a": {
   "List": [],
   "By": {
    "b": []
   }
  }
 },
 "Ptr": {
  "List": [],
  "By": {}
 },
 "Any": {
  "List": [],
  "By": {}
 }
}
`
	if w.Body.String() != want {
		t.Errorf("got %s", w.Body)
	}
	if !reflect.DeepEqual(v, build()) {
		t.Errorf("the value was changed: %+v", v)
	}
	w = httptest.NewRecorder()
	WriteJSON(w, func() {})
	if w.Code != 500 {
		t.Errorf("what cannot be marshalled is a %d", w.Code)
	}
}
