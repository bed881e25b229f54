package openai

import "strconv"

// Kind says which of the two APIs a request uses.
type Kind uint8

const (
	Chat       Kind = iota + 1 // /v1/chat/completions
	Completion                 // /v1/completions
)

// String is the kind's name in metrics.
func (k Kind) String() string {
	if k == Chat {
		return "chat_completions"
	}
	return "completions"
}

// Usage counts tokens.
type Usage struct{ Prompt, Completion int }

func (u Usage) append(dst []byte) []byte {
	dst = append(dst, `{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Completion), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt)+int64(u.Completion), 10)
	return append(dst, '}')
}

// Header is what all chunks of a response, and a whole reply, have in common.
type Header struct {
	Kind    Kind
	ID      string // request id; the reply's id is "chatcmpl-" or "cmpl-" and this
	Model   string
	Created int64 // seconds since 1970
}

func (h Header) append(dst []byte, object string) []byte {
	if h.Kind == Chat {
		dst = append(dst, `{"id":"chatcmpl-`...)
	} else {
		dst = append(dst, `{"id":"cmpl-`...)
	}
	dst = AppendEscaped(dst, h.ID)
	dst = append(dst, `","object":"`...)
	dst = append(dst, object...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, h.Created, 10)
	dst = append(dst, `,"model":"`...)
	dst = AppendEscaped(dst, h.Model)
	return append(dst, `",`...)
}

const (
	chatChunkOpen   = `"choices":[{"index":0,"delta":{"content":"`
	chatChunkClose  = `"},"finish_reason":null}]`
	complChunkOpen  = `"choices":[{"index":0,"text":"`
	complChunkClose = `","logprobs":null,"finish_reason":null}]`

	eventEnd      = "}\n\n"
	eventEndUsage = ",\"usage\":null}\n\n" // with include_usage, chunks before the usage chunk carry a null
)

// Chunks appends the server-sent events of one streamed response. Each method appends whole events ("data: ...", blank
// line) to dst and returns it. It may be copied; its methods do not allocate beyond dst's growth and are safe for
// concurrent use.
type Chunks struct {
	kind   Kind
	head   []byte // "data: " and everything up to the choices
	prefix []byte // head, and the choice up to the text
	suffix string // from the text's end to the event's
	end    string // from the choices' end to the event's
}

// NewChunks prepares the chunks of a response. includeUsage says that AppendUsage will be called.
func NewChunks(h Header, includeUsage bool) Chunks {
	object, open, closing := "chat.completion.chunk", chatChunkOpen, chatChunkClose
	if h.Kind != Chat {
		object, open, closing = "text_completion", complChunkOpen, complChunkClose
	}
	b := make([]byte, 0, 192+len(h.ID)+len(h.Model))
	b = h.append(append(b, "data: "...), object)
	n := len(b)
	b = append(b, open...)
	c := Chunks{kind: h.Kind, head: b[:n:n], prefix: b, suffix: closing + eventEnd, end: eventEnd}
	if includeUsage {
		c.suffix, c.end = closing+eventEndUsage, eventEndUsage
	}
	return c
}

// AppendStart appends what comes before the first text: for chat the chunk with the role, else nothing.
func (c *Chunks) AppendStart(dst []byte) []byte {
	if c.kind != Chat {
		return dst
	}
	dst = append(dst, c.head...)
	dst = append(dst, `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`...)
	return append(dst, c.end...)
}

// AppendText appends one chunk with this text.
func (c *Chunks) AppendText(dst, text []byte) []byte {
	dst = append(dst, c.prefix...)
	dst = AppendEscaped(dst, text)
	return append(dst, c.suffix...)
}

// AppendFinish appends the chunk that carries the finish reason.
func (c *Chunks) AppendFinish(dst []byte, reason string) []byte {
	dst = append(dst, c.head...)
	if c.kind == Chat {
		dst = append(dst, `"choices":[{"index":0,"delta":{},"finish_reason":"`...)
	} else {
		dst = append(dst, `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"`...)
	}
	dst = AppendEscaped(dst, reason)
	dst = append(dst, `"}]`...)
	return append(dst, c.end...)
}

// AppendUsage appends the usage chunk, which has no choices.
func (c *Chunks) AppendUsage(dst []byte, u Usage) []byte {
	dst = append(dst, c.head...)
	dst = append(dst, `"choices":[],"usage":`...)
	dst = u.append(dst)
	return append(dst, eventEnd...)
}

// AppendDone appends the event that ends every stream, a failed one too.
func AppendDone(dst []byte) []byte { return append(dst, "data: [DONE]\n\n"...) }

// AppendErrorEvent appends the event that tells a failure after the status line has gone out.
func AppendErrorEvent(dst []byte, e *Error) []byte {
	dst = append(dst, "data: "...)
	dst = e.AppendJSON(dst)
	return append(dst, "\n\n"...)
}

// AppendKeepAlive appends a comment, which clients skip and which keeps proxies from closing an idle connection. No
// blank line follows: it belongs to the event that comes next. openai-go takes a blank line for the end of an event, an
// empty one too, and fails.
func AppendKeepAlive(dst []byte) []byte { return append(dst, ": keep-alive\n"...) }
