// Package redact keeps secrets out of what people and other programs read: what URLs and addresses hold before an @ and
// as values of a query.
package redact

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// hidden stands where a secret was.
const hidden = "xxxxx"

// All hides all of a text, but not that it is empty.
func All(s string) string {
	if s == "" {
		return ""
	}
	return hidden
}

// URL is a setting that is a URL or an address, or several with commas between. However it is printed, logged or
// marshalled, it shows no secret: fmt reads no strings behind pointers, so not even as an unexported field of something
// else.
type URL struct{ whole *string }

// New is the setting s.
func New(s string) URL {
	if s == "" {
		return URL{}
	}
	return URL{&s}
}

// URLs are settings.
func URLs(list ...string) []URL {
	var out []URL
	for _, s := range list {
		out = append(out, New(s))
	}
	return out
}

// Whole is the text with its secrets, for whoever connects.
func (u URL) Whole() string {
	if u.whole == nil {
		return ""
	}
	return *u.whole
}

// Wholes are the texts with their secrets.
func Wholes(list []URL) []string {
	var out []string
	for _, u := range list {
		out = append(out, u.Whole())
	}
	return out
}

// Empty says whether there is none.
func (u URL) Empty() bool { return u.whole == nil }

func (u URL) String() string   { return Address(u.Whole()) }
func (u URL) GoString() string { return u.String() }

// MarshalText implements encoding.TextMarshaler, for JSON and slog.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// nextURL is where another URL begins in a list.
var nextURL = regexp.MustCompile(`,\s*[A-Za-z][A-Za-z0-9+.-]*://`)

// Address hides what stands before an @ and the values of the query, in a URL or address or a list of them. It never
// fails: of what is no URL, and may be one with a slip in it, rather too much is hidden.
func Address(s string) string {
	var out strings.Builder
	for {
		at := nextURL.FindStringIndex(s)
		if at == nil {
			out.WriteString(one(s))
			return out.String()
		}
		out.WriteString(one(s[:at[0]]))
		out.WriteByte(',')
		s = s[at[0]+1:]
	}
}

func one(s string) string {
	scheme, rest := "", s
	if i := strings.Index(s, "://"); i >= 0 && !strings.ContainsAny(s[:i], ":@") {
		scheme, rest = s[:i+3], s[i+3:]
	}
	// A well-formed URL may have an @ behind its host; in any other text it ends a password.
	host, tail := rest, ""
	if u, err := url.Parse(strings.TrimSpace(s)); scheme != "" && err == nil && u.Host != "" {
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			host, tail = rest[:i], rest[i:]
		}
		// nats://user/pass@host: the user looks like a host. Only what is asked for by HTTP has a path.
		if web := strings.HasPrefix(u.Scheme, "http"); u.User == nil && strings.Contains(tail, "@") &&
			(!web || u.Port() == "" && strings.Contains(u.Path, "@")) {
			host, tail = rest, ""
		}
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = hidden + host[i:]
	}
	return scheme + values(host+tail)
}

// values hides those of a query, and a fragment.
func values(s string) string {
	s, fragment, hasFragment := strings.Cut(s, "#")
	path, query, ok := strings.Cut(s, "?")
	if ok {
		pairs := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
		for i, p := range pairs {
			if name, _, ok := strings.Cut(p, "="); ok {
				pairs[i] = name + "=" + hidden
			} else {
				pairs[i] = hidden
			}
		}
		path += "?" + strings.Join(pairs, "&")
	}
	if hasFragment && fragment != "" {
		path += "#" + hidden
	}
	return path
}

// inText is a URL in the middle of text.
var inText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>` + "`" + `]+`)

// Text hides the same in all URLs that stand in a text.
func Text(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	return inText.ReplaceAllStringFunc(s, func(u string) string {
		end := strings.TrimRight(u, ":;,.)]}") // the text's own
		return Address(end) + u[len(end):]
	})
}

// Args is a command line without the secrets in it.
func Args(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		name := ""
		if strings.HasPrefix(a, "-") {
			if n, v, ok := strings.Cut(a, "="); ok {
				name, a = n+"=", v
			}
		}
		if strings.Contains(a, "://") || strings.Contains(a, "@") {
			a = Address(a)
		}
		out[i] = name + a
	}
	return out
}

// quoted is what stands between quotes, also with escaped ones in it.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// Error is err with a text that holds no secrets: of the settings, and of URLs that stand in it. It unwraps to err. Nil
// stays nil.
func Error(err error, settings ...URL) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if e, ok := errors.AsType[*url.Error](err); ok { // with blanks in it, it would not be seen as one in the text
		text = strings.ReplaceAll(text, strconv.Quote(e.URL), strconv.Quote(Address(e.URL)))
		text = strings.ReplaceAll(text, e.URL, Address(e.URL))
		if e.Op == "parse" &&
			e.Err != nil { // it quotes the piece that it stumbled over: invalid port ":pass" after host
			why := e.Err.Error()
			text = strings.ReplaceAll(text, why, quoted.ReplaceAllString(why, `"`+hidden+`"`))
		}
	}
	for _, s := range settings {
		if !s.Empty() {
			text = strings.ReplaceAll(text, s.Whole(), s.String())
		}
	}
	if text = Text(text); text == err.Error() {
		return err
	}
	return &redacted{err, text}
}

type redacted struct {
	err  error
	text string
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.err }
