package serving

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestRequestsThatDoNotHold(t *testing.T) {
	good, _ := goldenRequest().Encode()
	var version *VersionError
	if _, err := DecodeRequest([]byte(`{"v":1}`)); !errors.As(err, &version) || version.Got != '{' {
		t.Errorf("a request of an older release: %v", err)
	}
	body := len(goldenRequest().Body)
	for n := range len(good) - body {
		if _, err := DecodeRequest(good[:n]); err == nil {
			t.Errorf("cut at %d: no error", n)
		}
	}
	if _, err := DecodeRequest(good[:len(good)-body+11]); !errors.Is(err, ErrMalformed) {
		t.Errorf("a body that ends inside its model: %v", err)
	}
	flags := bytes.Clone(good)
	flags[1] = 0x80
	if _, err := DecodeRequest(flags); !errors.Is(err, ErrMalformed) {
		t.Errorf("unknown flags: %v", err)
	}
	bad := Request{Model: strings.Repeat("m", 1<<16), ModelAt: 1, Headers: []Header{{"", "x"}}}
	_, err := bad.Encode()
	for _, want := range []string{"id has 0", "method has 0", "path has 0", "model has 65536", "model at 1",
		"name has 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestBodyForAnAlias(t *testing.T) {
	r := goldenRequest()
	if got := r.BodyFor("m"); &got[0] != &r.Body[0] {
		t.Error("the same name makes another body")
	}
	if got := string(r.BodyFor(`a"b`)); got != `{"model":"a\"b","stream":true}` {
		t.Errorf("got %s", got)
	}
	if string(r.Body) != `{"model":"m","stream":true}` {
		t.Error("the request's own body has changed")
	}
}

func FuzzRequest(f *testing.F) {
	good, _ := goldenRequest().Encode()
	f.Add(good)
	f.Add([]byte{1, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		r, err := DecodeRequest(p)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil || !bytes.Equal(again, p) {
			t.Fatalf("%x is read, and written as %x (%v)", p, again, err)
		}
	})
}

func TestPeek(t *testing.T) {
	for in, want := range map[string]Peeked{
		`{}`:                            {},
		` {"model":"m","stream":true} `: {"m", 10, 3, true},
		`{"Model":"x","STREAM":true}`:   {},
		`{"\u006dodel":"m\n","messages":[{"model":"in"}]}`:                                {"m\n", 14, 5, false},
		`{"a":{"stream":true},"b":[{"model":"z"}]}`:                                       {},
		`{"stream":null,"a":"}\"{","model":"m"}`:                                          {"m", 34, 3, false},
		`{"t":NaN,"u":-1e9,"stream":false}`:                                               {},
		`{"a":` + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + `,"stream":true}`: {Stream: true},
	} {
		if got, err := Peek([]byte(in)); err != nil || got != want {
			t.Errorf("%.80s: got %+v, %v, want %+v", in, got, err, want)
		}
	}
	for in, param := range map[string]string{
		``: "", `[]`: "", `"model"`: "", `{`: "", `{"a"`: "", `{"a":`: "", `{"a":1`: "", `{"a":1,}`: "", `{"a":1}x`: "",
		`{"a":,}`: "",
		`{"a":"`:  "", `{"a":"\`: "", `{"a":]}`: "", "\xef\xbb\xbf{}": "",
		`{"model":"a","model":"a"}`: "model", `{"model":"a","m\u006fdel":"b"}`: "model", `{"model":null}`: "model",
		`{"model":["a"]}`:               "model",
		`{"stream":true,"stream":true}`: "stream", `{"stream":"true"}`: "stream", `{"stream":1}`: "stream",
		`{"stream":{}}`: "stream",
	} {
		var be *BodyError
		if _, err := Peek([]byte(in)); !errors.As(err, &be) || be.Param != param {
			t.Errorf("%s: %v (%+v), want a complaint about %q", in, err, be, param)
		}
	}
}

// FuzzPeek: of valid JSON, Peek finds what encoding/json's tokens say.
func FuzzPeek(f *testing.F) {
	for _, s := range []string{`{"model":"m","stream":true}`, `{"a":[1,{"model":"x"}],"\u006dodel":"y"}`,
		`{"stream":"x"}`, `{"model":"a","model":"b"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Peek(body)
		if err == nil && got.ModelLen > 0 {
			var m string
			if json.Unmarshal(body[got.ModelAt:got.ModelAt+got.ModelLen], &m) != nil || m != got.Model {
				t.Fatalf("%q: the place of model holds %q, not %q", body, m, got.Model)
			}
		}
		if !json.Valid(body) || bytes.TrimSpace(body)[0] != '{' {
			return
		}
		var want Peeked
		var seen [2]int
		bad := false
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.Token()
		for dec.More() {
			key, _ := dec.Token()
			var v any
			if dec.Decode(&v) != nil {
				return // a number that Go does not hold
			}
			switch key {
			case "model":
				s, ok := v.(string)
				want.Model, bad = s, bad || !ok
				seen[0]++
			case "stream":
				b, ok := v.(bool)
				want.Stream, bad = b, bad || !ok && v != nil
				seen[1]++
			}
		}
		if bad = bad || seen[0] > 1 || seen[1] > 1; bad != (err != nil) {
			t.Fatalf("%q: %v, want a complaint: %v", body, err, bad)
		}
		if !bad && (got.Model != want.Model || got.Stream != want.Stream) {
			t.Fatalf("%q: got %+v, want %+v", body, got, want)
		}
	})
}

func TestHeaderFilters(t *testing.T) {
	in := FilterIn(map[string][]string{"Content-Type": {"application/json"}, "Authorization": {"Bearer x"},
		"X-Api-Key": {"k"},
		"Cookie":    {"c"}, "Connection": {"close, X-Hop"}, "X-Hop": {"1"}, "X-Mine": {"1", "2"}, "X-Other": {"3"},
		"Proxy-Authorization": {"p"}, "Traceparent": {"t"}}, []string{"x-mine", "X-HOP", "authorization",
		"proxy-authorization"})
	if want := []Header{{"content-type", "application/json"}, {"traceparent", "t"}, {"x-mine", "1"}, {"x-mine",
		"2"}}; !reflect.DeepEqual(in, want) {
		t.Errorf("in: %v, want %v", in, want)
	}
	out := FilterOut(map[string][]string{"Content-Type": {"a"}, "Retry-After": {"1"}, "Set-Cookie": {"s"},
		"Server": {"x"}, "Alt-Svc": {"h3"},
		"Content-Encoding": {"gzip"}, "Trailer": {"t"}, "Transfer-Encoding": {"chunked"}, "X-Request-Id": {"own"},
		"X-Laneway-Worker":  {"w"},
		"X-Ratelimit-Limit": {"9"}})
	if want := []Header{{"content-type", "a"}, {"retry-after", "1"}, {"x-ratelimit-limit",
		"9"}}; !reflect.DeepEqual(out, want) {
		t.Errorf("out: %v, want %v", out, want)
	}
}
