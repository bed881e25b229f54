package serving

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden vectors instead of comparing with them")

const chunk = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":" one"}}]}`

func goldenRequest() *Request {
	body := []byte(`{"model":"m","stream":true}`)
	return &Request{ID: "r1", Method: "POST", Path: "/v1/chat/completions", Model: "m", Stream: true, ModelAt: 9,
		ModelLen: 3,
		Headers:  []Header{{"accept", "text/event-stream"}, {"content-type", "application/json"}}, Body: body}
}

// goldenRecords are those of one streamed answer, and of one that is a body.
func goldenRecords() (names []string, records map[string][]byte, events []string) {
	events = []string{chunk, strings.Replace(chunk, "one", "two", 1), "data: [DONE]"}
	var enc Encoder
	head := Head{Status: 200, Headers: []Header{{"content-type", "text/event-stream"}}}
	first := enc.Append(appendHead([]byte{byte(KindHead)}, &head), []byte(events[0]))
	enc.Sent([]byte(events[0]))
	records = map[string][]byte{
		"head":  first,
		"delta": enc.Append(nil, []byte(events[1])),
		"last":  append([]byte{byte(KindLast)}, events[2]...),
		"event": append([]byte{byte(KindEvent)}, events[0]...),
		"body":  append([]byte{byte(KindBody)}, `{"object":"list"}`...),
	}
	return []string{"head", "delta", "last"}, records, events
}

func goldenTrailers() map[string]*Trailer {
	return map[string]*Trailer{
		"trailer": {Usage: &Usage{1024, 256}, FinishReasons: []string{"stop", "length"}},
		"refused": {Answer: &EngineAnswer{Head{429, []Header{{"retry-after", "2"}}}, []byte(`{"error":{}}`)}},
	}
}

func TestGoldenVectors(t *testing.T) {
	_, vectors, _ := goldenRecords()
	request, err := goldenRequest().Encode()
	if err != nil {
		t.Fatal(err)
	}
	vectors["request"] = request
	for name, tr := range goldenTrailers() {
		vectors[name] = tr.Append(nil)
	}
	for name, got := range vectors {
		file := filepath.Join("testdata", name+".hex")
		if *update {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(got)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if want := golden(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s encodes as\n%x, the golden vector is\n%x", name, got, want)
		}
	}
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".hex"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenVectorsAreRead(t *testing.T) {
	r, err := DecodeRequest(golden(t, "request"))
	if err != nil || !reflect.DeepEqual(r, goldenRequest()) {
		t.Errorf("request: got %+v, %v", r, err)
	}
	for name, want := range goldenTrailers() {
		if got, err := DecodeTrailer(golden(t, name)); err != nil || !reflect.DeepEqual(&got, want) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	names, _, events := goldenRecords()
	var d Decoder
	for i, name := range names {
		got, piece, err := d.Append(nil, golden(t, name))
		if err != nil || string(got) != events[i] || (piece.Head != nil) != (i == 0) {
			t.Errorf("%s: got %q, %+v, %v", name, got, piece, err)
		}
	}
	if !d.Ended() {
		t.Error("the last event was not taken for it")
	}
}

// TestPageShowsTheVectors: docs/serving.md has the same bytes.
func TestPageShowsTheVectors(t *testing.T) {
	page, err := os.ReadFile("../../docs/serving.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.hex")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d vectors, %v", len(files), err)
	}
	words := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if f := strings.Fields(line); len(f) == 2 {
			words[f[0]] = f[1]
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".hex")
		if want := hex.EncodeToString(golden(t, name)); words[name] != want {
			t.Errorf("the page says that %s is %q, the vector is %q", name, words[name], want)
		}
	}
}
