package discovery_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
)

func TestRecordRoundTrip(t *testing.T) {
	want := discoverytest.Worker("w-1", 3)
	want.MaxRunning = 256
	want.Node.Planes = append(want.Node.Planes, discovery.Plane{Name: "quic", Endpoints: []string{"[fd00::1]:7000",
		"host.example:7001"}})
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := discovery.DecodeWorker("/k/w-1", data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("DecodeWorker = %+v, %v; want %+v", got, err, want)
	}
}

func TestRecordErrorsNameTheField(t *testing.T) {
	for field, spoil := range map[string]func(*discovery.Worker){
		"id":                    func(w *discovery.Worker) { w.ID = "a/b" },
		"models":                func(w *discovery.Worker) { w.Models = []string{""} },
		"max_running":           func(w *discovery.Worker) { w.MaxRunning = -1 },
		"node.id":               func(w *discovery.Worker) { w.Node.ID = strings.Repeat("g", 32) },
		"node.name":             func(w *discovery.Worker) { w.Node.Name = strings.Repeat("n", 257) },
		"node.planes":           func(w *discovery.Worker) { w.Node.Planes = nil },
		"node.planes.name":      func(w *discovery.Worker) { w.Node.Planes = append(w.Node.Planes, w.Node.Planes[0]) },
		"node.planes.endpoints": func(w *discovery.Worker) { w.Node.Planes[0].Endpoints = []string{"[::]:7000"} },
		"node.wire_min":         func(w *discovery.Worker) { w.Node.WireMin = 2 },
	} {
		w := discoverytest.Worker("w", 1)
		spoil(&w)
		_, err := w.Encode()
		var re *discovery.RecordError
		if !errors.As(err, &re) || re.Field != field {
			t.Errorf("%s: err = %v", field, err)
		}
	}
	const latin1 = "caf\xe9" // JSON would make U+FFFD of it, a Prometheus label panics
	for field, spoil := range map[string]func(*discovery.Worker){
		"id":                    func(w *discovery.Worker) { w.ID = latin1 },
		"models":                func(w *discovery.Worker) { w.Models = []string{"m", latin1} },
		"node.name":             func(w *discovery.Worker) { w.Node.Name = latin1 },
		"node.network":          func(w *discovery.Worker) { w.Node.Network = latin1 },
		"node.planes.name":      func(w *discovery.Worker) { w.Node.Planes[0].Name = latin1 },
		"node.planes.endpoints": func(w *discovery.Worker) { w.Node.Planes[0].Endpoints = []string{latin1 + ":1"} },
	} {
		w := discoverytest.Worker("w", 1)
		spoil(&w)
		_, err := w.Encode()
		if re, ok := errors.AsType[*discovery.RecordError](err); !ok || re.Field != field ||
			!strings.Contains(err.Error(), `caf\xe9`) {
			t.Errorf("%s that is not UTF-8: err = %v", field, err)
		}
	}
	for _, e := range []string{"10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", ":7000", "0.0.0.0:7000", "10.0.0.1:http"} {
		w := discoverytest.Worker("w", 1)
		w.Node.Planes[0].Endpoints = []string{e}
		if _, err := w.Encode(); err == nil || !strings.Contains(err.Error(), "plane tcp") {
			t.Errorf("endpoint %q: err = %v, want one that names the plane", e, err)
		}
	}
}

// TestRecordErrorsAreShort: the error of a record goes into a log line, and anything may stand in a registry.
func TestRecordErrorsAreShort(t *testing.T) {
	huge := strings.Repeat("é", 50_000)
	spoils := map[string]func(*discovery.Worker){
		"id":      func(w *discovery.Worker) { w.ID = huge },
		"model":   func(w *discovery.Worker) { w.Models = []string{huge} },
		"node id": func(w *discovery.Worker) { w.Node.ID = huge },
		"plane":   func(w *discovery.Worker) { w.Node.Planes[0] = discovery.Plane{Name: huge} },
		"twice": func(w *discovery.Worker) {
			p := w.Node.Planes[0]
			p.Name = huge
			w.Node.Planes = []discovery.Plane{p, p}
		},
		"no port":   func(w *discovery.Worker) { w.Node.Planes[0].Endpoints = []string{huge} },
		"bad port":  func(w *discovery.Worker) { w.Node.Planes[0].Endpoints = []string{"a:" + huge} },
		"many more": func(w *discovery.Worker) { w.Node.Planes[0].Endpoints = []string{huge + ":0"} },
	}
	records := map[string][]byte{
		"a number": []byte(`{"schema":1,"max_running":` + strings.Repeat("9", 100_000) + `}`),
		"no JSON":  []byte(huge),
	}
	for name, spoil := range spoils {
		w := discoverytest.Worker("w", 1)
		w.Schema = discovery.Schema
		spoil(&w)
		data, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		records[name] = data
	}
	for name, data := range records {
		_, err := discovery.DecodeWorker("/laneway/"+huge, data)
		if err == nil || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "bytes)") ||
			!utf8.ValidString(err.Error()) {
			text := fmt.Sprint(err)
			t.Errorf("%s: an error of %d bytes: %.300s", name, len(text), text)
		}
	}
}

// FuzzDecodeWorker: nothing in a registry can make a frontend panic, and what is taken can be written again.
func FuzzDecodeWorker(f *testing.F) {
	good, err := discoverytest.Worker("w", 1).Encode()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(good), "", "{", "null", "[]", `{"schema":1}`, `{"schema":2}`,
		`{"schema":1,"id":"w","models":["m"],"node":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := discovery.DecodeWorker("k", data)
		if err != nil {
			var re *discovery.RecordError
			if !errors.As(err, &re) || re.Key != "k" || re.Field == "" {
				t.Fatalf("error %v names no key and field", err)
			}
			return
		}
		again, err := w.Encode()
		if err != nil {
			t.Fatalf("%+v was taken and cannot be written: %v", w, err)
		}
		back, err := discovery.DecodeWorker("k", again)
		if err != nil || !reflect.DeepEqual(back, w) {
			t.Fatalf("%+v came back as %+v, %v", w, back, err)
		}
	})
}
