package openai

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// encoded is what encoding/json makes of s, without its quotes.
func encoded(t testing.TB, s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	out := strings.TrimSuffix(b.String(), "\n")
	return out[1 : len(out)-1]
}

func TestEscapeLikeEncodingJSON(t *testing.T) {
	var all []byte
	for c := range 256 {
		all = append(all, byte(c))
	}
	for _, s := range []string{
		"", "plain", `"quoted" \ back`, "\b\f\n\r\t\x00\x1f\x7f", "<a>&'", "käse 日本 🙂", "a\u2028b\u2029c",
		"\u2027\u202a",
		"\xff", "a\xffb", "\xe2\x80", "\xe2\x80\xa8", "\xf0\x9f\x99", "\xed\xa0\x80", "\ufffd", string(all),
	} {
		want := encoded(t, s)
		if got := string(AppendEscaped([]byte("x"), s)); got != "x"+want {
			t.Errorf("%q: got %s, encoding/json says %s", s, got, want)
		}
		if got := string(AppendEscaped(nil, []byte(s))); got != want {
			t.Errorf("%q as bytes: got %s, encoding/json says %s", s, got, want)
		}
	}
}

// FuzzEscape holds the escaping to encoding/json, alone and inside every kind of event.
func FuzzEscape(f *testing.F) {
	f.Add([]byte("plain"), "m")
	f.Add([]byte("\xff\u2028\"\\\x00"), "\xe2\x80")
	f.Fuzz(func(t *testing.T, text []byte, model string) {
		got := AppendEscaped(nil, text)
		if want := encoded(t, string(text)); string(got) != want {
			t.Fatalf("%q: got %s, encoding/json says %s", text, got, want)
		}
		for _, k := range []Kind{Chat, Completion} {
			c := NewChunks(Header{Kind: k, ID: model, Model: model, Created: 1}, len(text)%2 == 0)
			event := string(c.AppendText(nil, text))
			data, ok := strings.CutPrefix(event, "data: ")
			if !ok || !strings.HasSuffix(data, "\n\n") || strings.Count(event, "\n") != 2 {
				t.Fatalf("not one event: %q", event)
			}
			var v struct {
				Model   string
				Choices []struct {
					Text  *string
					Delta *struct{ Content *string }
				}
			}
			if err := json.Unmarshal([]byte(data), &v); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			want := strings.ToValidUTF8(model, "\ufffd")
			if len(model) < 2 && v.Model != want { // a run of bad bytes gives one mark each here, one in all there
				t.Fatalf("model %q, want %q", v.Model, want)
			}
			var content string
			if k == Chat {
				content = *v.Choices[0].Delta.Content
			} else {
				content = *v.Choices[0].Text
			}
			var ref string
			if err := json.Unmarshal([]byte(`"`+encoded(t, string(text))+`"`), &ref); err != nil {
				t.Fatal(err)
			}
			if content != ref {
				t.Fatalf("text %q, want %q", content, ref)
			}
		}
		e := Error{Type: TypeServer, Message: string(text), Code: model, Param: model}
		if j := e.AppendJSON(nil); !json.Valid(j) {
			t.Fatalf("not JSON: %s", j)
		}
	})
}

// FuzzParse holds that no body makes the parser panic, and that an error is always one for the client.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`,
		`{"model":"m","prompt":[[1,2]],"stop":["a"]}`, `{"model":"m","prompt":[]}`, `[`, `{"prompt":[`, `{"model":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, k := range []Kind{Chat, Completion} {
			r, err := ParseRequest(k, body)
			if err != nil {
				if err.Status != 400 || err.Type != TypeInvalidRequest || err.Message == "" ||
					!json.Valid(err.AppendJSON(nil)) {
					t.Fatalf("%q: %+v", body, err)
				}
				continue
			}
			if r.Model == "" || r.PromptTokens() < 0 || r.MaxTokens < 0 || len(r.Stop) > MaxStops {
				t.Fatalf("%q: %+v", body, r)
			}
		}
	})
}

func TestEvents(t *testing.T) {
	const chatHead = `data: {"id":"chatcmpl-r1","object":"chat.completion.chunk","created":1700000000,"model":"m\"1",`
	const complHead = `data: {"id":"cmpl-r1","object":"text_completion","created":1700000000,"model":"m\"1",`
	h := Header{ID: "r1", Model: `m"1`, Created: 1700000000}
	for _, c := range []struct {
		kind                        Kind
		usage                       bool
		start, text, finish, usages string
	}{
		{Chat, false,
			chatHead + `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` +
				"\n\n",
			chatHead + `"choices":[{"index":0,"delta":{"content":"a\nb"},"finish_reason":null}]}` + "\n\n",
			chatHead + `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n", ""},
		{Chat, true,
			chatHead +
				`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}` +
				"\n\n",
			chatHead + `"choices":[{"index":0,"delta":{"content":"a\nb"},"finish_reason":null}],"usage":null}` + "\n\n",
			chatHead + `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` + "\n\n",
			chatHead + `"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}` + "\n\n"},
		{Completion, false, "",
			complHead + `"choices":[{"index":0,"text":"a\nb","logprobs":null,"finish_reason":null}]}` + "\n\n",
			complHead + `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}` + "\n\n", ""},
		{Completion, true, "",
			complHead + `"choices":[{"index":0,"text":"a\nb","logprobs":null,"finish_reason":null}],"usage":null}` +
				"\n\n",
			complHead + `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}],"usage":null}` +
				"\n\n",
			complHead + `"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}` + "\n\n"},
	} {
		h.Kind = c.kind
		w := NewChunks(h, c.usage)
		check := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%v usage=%v %s:\n got %q\nwant %q", c.kind, c.usage, what, got, want)
			}
		}
		check("start", string(w.AppendStart(nil)), c.start)
		check("text", string(w.AppendText(nil, []byte("a\nb"))), c.text)
		check("finish", string(w.AppendFinish(nil, "stop")), c.finish)
		if c.usage {
			check("usage", string(w.AppendUsage(nil, Usage{3, 4})), c.usages)
		}
	}
}

func TestReplies(t *testing.T) {
	h := Header{Kind: Chat, ID: "r1", Model: "m", Created: 5}
	reply := func() string {
		b := AppendReplyStart(nil, h)
		b = AppendEscaped(b, "a\"b")
		return string(AppendReplyEnd(b, h.Kind, "length", Usage{1, 2}))
	}
	if got, want := reply(),
		`{"id":"chatcmpl-r1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a\"b","refusal":null},"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`; got != want {
		t.Errorf("chat:\n got %s\nwant %s", got, want)
	}
	h.Kind = Completion
	if got, want := reply(),
		`{"id":"cmpl-r1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a\"b","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`; got != want {
		t.Errorf("completion:\n got %s\nwant %s", got, want)
	}
	if got, want := string(AppendModelList(nil, []string{"a", "b/c"}, 7)),
		`{"object":"list","data":[{"id":"a","object":"model","created":7,"owned_by":"laneway"},{"id":"b/c","object":"model","created":7,"owned_by":"laneway"}]}`; got != want {
		t.Errorf("models:\n got %s\nwant %s", got, want)
	}
	if got, want := string(AppendModelList(nil, nil, 7)), `{"object":"list","data":[]}`; got != want {
		t.Errorf("no models: %s", got)
	}
	e := Invalid("n", "", "bad \"n\"")
	if got, want := string(e.AppendJSON(nil)),
		`{"error":{"message":"bad \"n\"","type":"invalid_request_error","param":"n","code":null}}`; got != want {
		t.Errorf("error:\n got %s\nwant %s", got, want)
	}
}

func TestParse(t *testing.T) {
	r, err := ParseRequest(Chat,
		[]byte(`{"model":"m","messages":[{"role":"system","content":"be  brief"},{"role":"user","content":[{"type":"text","text":"one "},{"type":"text","text":"two\nthree"}]},
		{"role":"assistant","content":null}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"max_completion_tokens":7,"n":1,"stop":["a","b"],"user":"u","new_field":{"x":[1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Stream || !r.IncludeUsage || r.MaxTokens != 7 || strings.Join(r.Stop, ",") != "a,b" || r.User != "u" ||
		r.PromptTokens() != 5 || r.Messages[1].Content != "one two\nthree" {
		t.Errorf("got %+v, prompt tokens %d", r, r.PromptTokens())
	}
	for body, tokens := range map[string]int{
		`{"model":"m","prompt":" a bc\td "}`:                                                           3,
		`{"model":"m","prompt":["a b"],"stop":"x","max_tokens":null,"n":null,"stop":null}`:             2,
		`{"model":"m","prompt":[1,2,3,4]}`:                                                             4,
		`{"model":"m","prompt":[ [1,2,3] ],"stream":null,"stream_options":null,"user":null}`:           3,
		`{"model":"m","prompt":""}`:                                                                    0,
		"{\"model\":\"m\",\"prompt\":\"a\u00a0b\u3000c\"}":                                             3,
		`{"model":"m","prompt":"x","temperature":0.1,"logit_bias":{"1":2},"seed":4,"ignore_eos":true}`: 1,
	} {
		r, err := ParseRequest(Completion, []byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		} else if r.PromptTokens() != tokens || r.Stream {
			t.Errorf("%s: %d tokens, want %d (%+v)", body, r.PromptTokens(), tokens, r)
		}
	}
}

func TestParseErrors(t *testing.T) {
	const chat = `{"model":"m","messages":[{"role":"user","content":"x"}],`
	for _, c := range []struct {
		kind               Kind
		body, param, words string
	}{
		{Chat, ``, "", "not valid JSON"},
		{Chat, `{"model":"m"`, "", "not valid JSON"},
		{Chat, `{} x`, "", "not valid JSON"},
		{Chat, `[]`, "", "expected an object"},
		{Chat, `"x"`, "", "expected an object"},
		{Chat, `null`, "model", "model is missing"},
		{Chat, `{"messages":[]}`, "model", "model is missing"},
		{Chat, `{"model":3}`, "model", "expected a string"},
		{Chat, `{"model":"m"}`, "messages", "messages is missing"},
		{Chat, `{"model":"m","messages":[]}`, "messages", "messages is missing"},
		{Chat, `{"model":"m","messages":{}}`, "messages", "expected an array"},
		{Chat, `{"model":"m","messages":[{"content":"x"}]}`, "messages[0].role", "role is missing"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":3}]}`, "messages.content",
			"neither a string nor an array"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, "messages.content",
			"image_url"},
		{Chat, `{"model":"m","messages":[{"role":"user","content":["x"]}]}`, "messages.content", "no object"},
		{Chat, chat + `"n":2}`, "n", "n is 2"},
		{Chat, chat + `"n":0}`, "n", "n is 0"},
		{Chat, chat + `"n":"1"}`, "n", "expected an integer"},
		{Chat, chat + `"stream":"yes"}`, "stream", "expected true or false"},
		{Chat, chat + `"max_tokens":0}`, "max_tokens", "expected 1 or more"},
		{Chat, chat + `"max_tokens":1.5}`, "max_tokens", "expected an integer"},
		{Chat, chat + `"max_completion_tokens":-2}`, "max_completion_tokens", "is -2"},
		{Chat, chat + `"stop":["a","b","c","d","e"]}`, "stop", "has 5 strings"},
		{Chat, chat + `"stop":""}`, "stop", "empty string"},
		{Chat, chat + `"stop":7}`, "stop", "neither"},
		{Chat, chat + `"stop":[7]}`, "stop", "other things"},
		{Chat, chat + `"stream_options":3}`, "stream_options", "expected an object"},
		{Completion, `{"model":"m"}`, "prompt", "prompt is missing"},
		{Completion, `{"model":"m","prompt":null}`, "prompt", "prompt is missing"},
		{Completion, `{"model":"m","prompt":[]}`, "prompt", "is empty"},
		{Completion, `{"model":"m","prompt":[ ]}`, "prompt", "is empty"},
		{Completion, `{"model":"m","prompt":5}`, "prompt", "neither"},
		{Completion, `{"model":"m","prompt":["a","b"]}`, "prompt", "holds 2 prompts"},
		{Completion, `{"model":"m","prompt":[[1],[2]]}`, "prompt", "holds 2 prompts"},
		{Completion, `{"model":"m","prompt":[1,"b"]}`, "prompt", "other things"},
		{Completion, `{"model":"m","prompt":[-1]}`, "prompt", "other things"},
	} {
		_, err := ParseRequest(c.kind, []byte(c.body))
		if err == nil {
			t.Errorf("%s: no error", c.body)
			continue
		}
		if err.Param != c.param || !strings.Contains(err.Message, c.words) || err.Status != 400 ||
			err.Type != TypeInvalidRequest {
			t.Errorf("%s: param %q, %q; want %q, %q", c.body, err.Param, err.Message, c.param, c.words)
		}
	}
}

func TestChunkDoesNotAllocate(t *testing.T) {
	c := NewChunks(Header{Kind: Chat, ID: "r", Model: "m"}, true)
	buf, text := make([]byte, 0, 4096), []byte(" tök\"en\xff")
	if n := testing.AllocsPerRun(100, func() { buf = c.AppendText(buf[:0], text) }); n != 0 {
		t.Errorf("AppendText allocates %v times", n)
	}
}

func BenchmarkAppendText(b *testing.B) {
	c := NewChunks(Header{Kind: Chat, ID: "0123456789abcdef", Model: "mock-model"}, true)
	buf, text := make([]byte, 0, 4096), []byte(" token")
	b.ReportAllocs()
	for b.Loop() {
		buf = c.AppendText(buf[:0], text)
	}
	b.ReportMetric(float64(len(buf)), "bytes/event")
}
