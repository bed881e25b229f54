package loadgen

import "strings"

// api is how one of the APIs is asked, and how its streamed answer is read.
type api struct {
	path string // what its URLs end in
	// The body of a request is {"model":M,"stream":true, options, extra fields, limit: N, prompt P close.
	options       map[string]any // stream_options that the load generator needs
	limit         string
	prompt, close string
	header        string // a line that every request needs
	// scan reads an event.
	scan func(event []byte) (chunk, error)
	// listed says that an answer is complete when each of its choices has a finish reason and [DONE] has come; else
	// its last event says so.
	listed bool
}

// usageWanted asks for the usage, without which tokens cannot be counted.
var usageWanted = map[string]any{"include_usage": true}

// The APIs. What a complete answer is stands in docs/reading-reports.md.
var (
	chatAPI = &api{path: "/chat/completions", options: usageWanted, limit: "max_tokens",
		prompt: `"messages":[{"role":"user","content":"`, close: `"}]}`,
		scan: scanChoices, listed: true}
	completionsAPI = &api{path: "/completions", options: usageWanted, limit: "max_tokens", prompt: `"prompt":"`,
		close: `"}`, scan: scanChoices, listed: true}
	responsesAPI = &api{path: "/responses", limit: "max_output_tokens", prompt: `"input":"`, close: `"}`,
		scan: scanTyped}
	messagesAPI = &api{path: "/messages", limit: "max_tokens", prompt: `"messages":[{"role":"user","content":"`,
		close: `"}]}`, header: "anthropic-version: 2023-06-01",
		scan: scanTyped}
)

// apiOf finds the API that a path names; nil when it names none.
func apiOf(path string) *api {
	for _, a := range []*api{chatAPI, completionsAPI, responsesAPI, messagesAPI} { // the longer path first
		if strings.HasSuffix(path, a.path) {
			return a
		}
	}
	return nil
}

// scanTyped reads an event of /v1/responses or /v1/messages, whose events have a type.
func scanTyped(p []byte) (chunk, error) {
	c := chunk{tokens: -1}
	s := scanner{p: p}
	var top envelope
	var delta, reason, incomplete []byte
	err := s.object(func(key []byte) error {
		switch string(key) {
		case "delta": // a text (responses), or an object with one or with the reason of the end (messages)
			if s.peek() == '"' {
				return s.text(&delta)
			}
			return s.objectOrSkip(func(key []byte) error {
				switch string(key) {
				case "text", "thinking":
					return s.text(&delta)
				case "stop_reason":
					return s.text(&reason)
				}
				return s.skip()
			})
		case "usage":
			return s.usage("output_tokens", &c)
		case "response":
			return s.objectOrSkip(func(key []byte) error {
				switch string(key) {
				case "usage":
					return s.usage("output_tokens", &c)
				case "error":
					return s.errorValue(&c)
				case "incomplete_details":
					return s.objectOrSkip(func(key []byte) error {
						if string(key) == "reason" {
							return s.text(&incomplete)
						}
						return s.skip()
					})
				}
				return s.skip()
			})
		}
		return s.envelope(key, &top, &c)
	})
	if err == nil && s.peek() != 0 {
		err = errJSON
	}
	if len(reason) > 0 {
		c.finish(reason)
	}
	switch string(plain(top.kind)) {
	case "response.output_text.delta", "response.reasoning_text.delta", "response.reasoning_summary_text.delta",
		"content_block_delta":
		c.content = delta
	case "response.completed", "message_stop":
		c.last = true
	case "response.incomplete": // the API's word for the end at the limit that the request has set
		if c.finish(incomplete); c.length {
			c.last = true
		} else {
			c.failed, c.kind = true, []byte("response_incomplete")
			c.said = incomplete
		}
	case "response.failed", "response.cancelled":
		c.failed = true
	}
	top.judge(&c)
	return c, err
}
