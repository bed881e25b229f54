package nats

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	natsio "github.com/nats-io/nats.go"

	"github.com/laneway-ai/laneway/discovery"
)

// Names of headers; see the package comment.
const (
	headerVersion = "Laneway-Version"
	headerID      = "Laneway-Id"
	headerTerms   = "Laneway-Terms"
	headerCarry   = "Laneway-Carry-"
	headerAnswer  = "Laneway-Answer"
	headerReason  = "Laneway-Reason"

	version = "1"
)

var terms64 = base64.RawStdEncoding

// encodeRequest makes the message. It shares req's payload.
func encodeRequest(subject string, req discovery.Request) *natsio.Msg {
	h := make(natsio.Header, 3+len(req.Header))
	h[headerVersion] = []string{version}
	h[headerID] = []string{url.QueryEscape(req.ID)}
	if len(req.Terms) > 0 {
		h[headerTerms] = []string{terms64.EncodeToString(req.Terms)}
	}
	for k, v := range req.Header {
		h[headerCarry+url.QueryEscape(k)] = []string{url.QueryEscape(v)}
	}
	return &natsio.Msg{Subject: subject, Header: h, Data: req.Payload}
}

// size is what counts against the server's max_payload.
func size(m *natsio.Msg) int { return m.Size() - len(m.Subject) - len(m.Reply) }

// decodeRequest reads a message. The reply says what is wrong with it, when its Answer is not 0.
func decodeRequest(m *natsio.Msg) (discovery.Request, discovery.Reply) {
	bad := func(format string, a ...any) (discovery.Request, discovery.Reply) {
		return discovery.Request{}, discovery.Reply{Answer: discovery.BadRequest, Reason: fmt.Sprintf(format, a...)}
	}
	switch v := m.Header.Get(headerVersion); v {
	case version:
	case "":
		return bad("the message has no %s header: it is no request of Laneway", headerVersion)
	default:
		return discovery.Request{}, discovery.Reply{Answer: discovery.Unsupported,
			Reason: fmt.Sprintf("request version %q, this worker reads %s", v, version)}
	}
	req := discovery.Request{Payload: m.Data}
	var err error
	if req.ID, err = url.QueryUnescape(m.Header.Get(headerID)); err != nil {
		return bad("%s: %v", headerID, err)
	}
	if !utf8.ValidString(req.ID) {
		return bad("%s: %q is not UTF-8 text", headerID, req.ID)
	}
	if text := m.Header.Get(headerTerms); text != "" {
		if req.Terms, err = terms64.DecodeString(text); err != nil {
			return bad("%s: %v", headerTerms, err)
		}
	}
	for k, vs := range m.Header {
		name, ok := strings.CutPrefix(k, headerCarry)
		if !ok || len(vs) == 0 {
			continue
		}
		if name, err = url.QueryUnescape(name); err != nil {
			return bad("header %q: %v", k, err)
		}
		value, err := url.QueryUnescape(vs[0])
		if err != nil {
			return bad("header %q: %v", k, err)
		}
		if req.Header == nil {
			req.Header = make(map[string]string)
		}
		req.Header[name] = value
	}
	return req, discovery.Reply{}
}

// answers are the words on the wire.
var answers = map[discovery.Answer]string{
	discovery.Accepted: "accepted", discovery.Busy: "busy", discovery.Draining: "draining",
	discovery.Unsupported: "unsupported", discovery.BadRequest: "bad-request", discovery.Stale: "stale",
}

// reasonMax keeps a reply small whatever a handler says.
const reasonMax = 1024

func encodeReply(r discovery.Reply) *natsio.Msg {
	word, ok := answers[r.Answer]
	if !ok { // a handler's mistake must not look like an acceptance
		word, r.Reason = answers[discovery.BadRequest], fmt.Sprintf("the worker's handler returned %s", r.Answer)
	}
	h := natsio.Header{headerAnswer: {word}}
	if r.Reason != "" {
		h[headerReason] = []string{url.QueryEscape(r.Reason[:min(len(r.Reason), reasonMax)])}
	}
	return &natsio.Msg{Header: h}
}

func decodeReply(m *natsio.Msg) (discovery.Reply, error) {
	word := m.Header.Get(headerAnswer)
	for a, w := range answers {
		if w != word {
			continue
		}
		reason, err := url.QueryUnescape(m.Header.Get(headerReason))
		if err != nil {
			return discovery.Reply{}, fmt.Errorf("nats: unreadable reply: %s: %w", headerReason, err)
		}
		return discovery.Reply{Answer: a, Reason: reason}, nil
	}
	return discovery.Reply{}, fmt.Errorf("nats: unreadable reply: %s is %q", headerAnswer, word)
}
