package serving

import (
	"fmt"
	"slices"
	"strings"
)

// Header is one header field; the name is in lower case.
type Header struct{ Name, Value string }

const (
	maxHeaders = 255
	maxName    = 255
	maxValue   = 1<<16 - 1
)

// inbound are the headers of a client that engines read.
var inbound = []string{"content-type", "accept", "user-agent", "idempotency-key", "anthropic-version", "anthropic-beta",
	"openai-beta", "traceparent", "tracestate"}

// never pass in either direction: they concern one connection.
var hopByHop = []string{"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}

// secrets of a client end at the frontend, whatever --pass-header says.
var secrets = []string{"authorization", "x-api-key", "cookie"}

// engineOnly are headers of an engine that mean nothing to a client, or that the frontend sets itself.
var engineOnly = []string{"set-cookie", "server", "alt-svc", "content-encoding", "x-request-id"}

// PassesIn says whether a client's header travels to the worker. extra are further names, in any letter case.
func PassesIn(name string, extra []string) bool {
	name = strings.ToLower(name)
	if !Passable(name) {
		return false
	}
	return slices.Contains(inbound, name) ||
		slices.ContainsFunc(extra, func(s string) bool { return strings.EqualFold(s, name) })
}

// Passable says whether a name may be among the extra ones of PassesIn.
func Passable(name string) bool {
	name = strings.ToLower(name)
	return name != "" && !slices.Contains(secrets, name) && !slices.Contains(hopByHop, name) &&
		!strings.HasPrefix(name, "proxy-")
}

// PassesOut says whether an engine's header travels to the client.
func PassesOut(name string) bool {
	name = strings.ToLower(name)
	return name != "" && !slices.Contains(engineOnly, name) && !slices.Contains(hopByHop, name) &&
		!strings.HasPrefix(name, "proxy-") && !strings.HasPrefix(name, "x-laneway-")
}

// FilterIn returns the headers of h (as net/http has them) that pass in, by name.
func FilterIn(h map[string][]string, extra []string) []Header {
	return filter(h, func(name string) bool { return PassesIn(name, extra) })
}

// FilterOut returns the headers of h that pass out, by name.
func FilterOut(h map[string][]string) []Header { return filter(h, PassesOut) }

// filter leaves out what h's Connection header names, too.
func filter(h map[string][]string, pass func(string) bool) []Header {
	var hop []string
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			hop = append(hop, strings.ToLower(strings.TrimSpace(name)))
		}
	}
	var out []Header
	for name, values := range h {
		name = strings.ToLower(name)
		if !pass(name) || slices.Contains(hop, name) {
			continue
		}
		for _, v := range values {
			out = append(out, Header{name, v})
		}
	}
	slices.SortStableFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Get returns the first value of a header, "" where there is none. The name is in lower case.
func Get(h []Header, name string) string {
	for _, f := range h {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func checkHeaders(h []Header) error {
	if len(h) > maxHeaders {
		return fmt.Errorf("serving: %d headers, at most %d travel", len(h), maxHeaders)
	}
	for _, f := range h {
		switch {
		case f.Name == "" || len(f.Name) > maxName:
			return fmt.Errorf("serving: a header's name has %d bytes, expected 1 to %d", len(f.Name), maxName)
		case len(f.Value) > maxValue:
			return fmt.Errorf("serving: header %s has %d bytes, at most %d travel", f.Name, len(f.Value), maxValue)
		}
	}
	return nil
}

func appendHeaders(dst []byte, h []Header) []byte {
	dst = append(dst, byte(len(h)))
	for _, f := range h {
		dst = appendLong(appendShort(dst, f.Name), f.Value)
	}
	return dst
}

func (r *reader) headers() []Header {
	var h []Header
	for n := r.u8(); n > 0 && !r.bad; n-- {
		f := Header{Name: r.short(), Value: r.long()}
		if f.Name == "" {
			r.bad = true
		}
		if !r.bad {
			h = append(h, f)
		}
	}
	return h
}
