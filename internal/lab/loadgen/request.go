package loadgen

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// target is where requests go and what they look like. It does not change during a run.
type target struct {
	tls        bool
	host, port string // to connect to
	hostHeader string
	base       *url.URL // the server without the endpoint, for /v1/models
	path       string
	api        *api

	head   []byte // request line and fixed headers, up to the value of x-request-id
	before []byte // body up to the value of max_tokens
	middle []byte // body from there up to the prompt
	filler []byte // all of the prompt but its first, unique word
	after  []byte // rest of the body
}

// newTarget reads the URL. The requests' text needs the model: prepare makes it.
func newTarget(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	t := &target{tls: u.Scheme == "https", host: u.Hostname(), port: u.Port(), hostHeader: u.Host}
	if t.port == "" {
		t.port = map[bool]string{false: "80", true: "443"}[t.tls]
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	base := *u
	base.RawQuery, base.Fragment, base.RawPath = "", "", ""
	switch t.api = apiOf(path); {
	case t.api != nil:
		t.path, base.Path = path, strings.TrimSuffix(path, t.api.path)
	case strings.HasSuffix(path, "/v1"):
		t.api, t.path, base.Path = chatAPI, path+chatAPI.path, path
	default:
		t.api, t.path, base.Path = chatAPI, path+"/v1"+chatAPI.path, path+"/v1"
	}
	if u.RawQuery != "" {
		t.path += "?" + u.RawQuery
	}
	t.base = &base
	return t, nil
}

func (t *target) addr() string { return net.JoinHostPort(t.host, t.port) }

// words are short and common, so that each is about one token to most tokenizers.
var words = strings.Fields("the of and to in is it you that he was for on are with as his they be at one have this " +
	"from or had by hot but some what there")

// prepare makes the fixed parts of the requests.
func (t *target) prepare(cfg Config, userinfo *url.Userinfo) error {
	var h bytes.Buffer
	fmt.Fprintf(&h,
		"POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: laneway-loadgen\r\nAccept: text/event-stream\r\nContent-Type: "+
			"application/json\r\n", t.path, t.hostHeader)
	if userinfo != nil {
		fmt.Fprintf(&h, "Authorization: Basic %s\r\n", basic(userinfo))
	}
	header := cfg.Header
	if own, _ := cutHeader(t.api.header); own != "" && !slices.ContainsFunc(header, func(line string) bool {
		name, _ := cutHeader(line)
		return strings.EqualFold(name, own)
	}) {
		header = append(slices.Clone(header), t.api.header)
	}
	for _, line := range header {
		name, value := cutHeader(line)
		fmt.Fprintf(&h, "%s: %s\r\n", name, value)
	}
	h.WriteString("X-Request-Id: ")
	t.head = h.Bytes()

	model, err := json.Marshal(cfg.Model)
	if err != nil {
		return err
	}
	extra, err := t.api.extra(cfg.ExtraBody)
	if err != nil {
		return err
	}
	t.before = fmt.Appendf(nil, `{"model":%s,"stream":true,%s"%s":`, model, extra, t.api.limit)
	t.middle, t.after = []byte(","+t.api.prompt), []byte(t.api.close)
	for i := 1; i < cfg.ISL; i++ { // the unique word is the first
		t.filler = append(append(t.filler, ' '), words[i%len(words)]...)
	}
	return nil
}

// appendRequest appends one request. The id is its header and the first word of its prompt, so that no two requests
// share a prefix in a server's cache.
func (t *target) appendRequest(b []byte, id string, osl int) []byte {
	var room [20]byte
	tokens := strconv.AppendInt(room[:0], int64(osl), 10)
	n := len(t.before) + len(tokens) + len(t.middle) + len(id) + len(t.filler) + len(t.after)
	b = append(b, t.head...)
	b = append(b, id...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, "\r\n\r\n"...)
	b = append(b, t.before...)
	b = append(b, tokens...)
	b = append(b, t.middle...)
	b = append(b, id...)
	b = append(b, t.filler...)
	return append(b, t.after...)
}

// ours are the headers that requests set themselves.
var ours = map[string]bool{"Host": true, "Content-Length": true, "Content-Type": true, "X-Request-Id": true,
	"Transfer-Encoding": true, "Connection": true, "Expect": true, "Accept-Encoding": true}

func cutHeader(line string) (name, value string) {
	name, value, _ = strings.Cut(line, ":")
	return strings.TrimSpace(name), strings.TrimSpace(value)
}

// basic is how a header carries the user and the password of a URL.
func basic(u *url.Userinfo) string {
	pass, _ := u.Password()
	return base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + pass))
}

// CheckHeader says what is wrong with a header line, without naming it.
func CheckHeader(line string) error {
	name, value, ok := strings.Cut(line, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return errors.New("is not a header: write it like 'Name: value'")
	}
	if ours[textproto.CanonicalMIMEHeaderKey(name)] {
		return errors.New("is set by the load generator itself: leave it out")
	}
	return nil
}

// extra is the extra fields of a request as members before the next one. What they say of stream_options joins what
// the API needs there.
func (a *api) extra(body string) (string, error) {
	var inner string
	if b := strings.TrimSpace(body); b != "" {
		inner = strings.TrimSpace(b[1 : len(b)-1])
	}
	options := a.options
	var given struct {
		Options map[string]any `json:"stream_options"`
	}
	if inner != "" {
		if err := json.Unmarshal([]byte(body), &given); err != nil {
			return "", err
		}
	}
	if given.Options != nil {
		options = maps.Clone(given.Options)
		maps.Copy(options, a.options)
		var rest map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &rest); err != nil {
			return "", err
		}
		delete(rest, "stream_options")
		b, err := json.Marshal(rest)
		if err != nil {
			return "", err
		}
		inner = string(b[1 : len(b)-1])
	}
	out := ""
	if options != nil {
		b, err := json.Marshal(options)
		if err != nil {
			return "", err
		}
		out = `"stream_options":` + string(b) + ","
	}
	if inner != "" {
		out += inner + ","
	}
	return out, nil
}

// CheckBody says what is wrong with the extra fields of requests.
func CheckBody(s string) error {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &m); err != nil || m == nil {
		return errors.New(`is not a JSON object: write it like {"ignore_eos":true}`)
	}
	for _, k := range []string{"model", "stream", "max_tokens", "max_output_tokens", "messages", "prompt", "input",
		"n"} {
		if _, ok := m[k]; ok {
			return fmt.Errorf("sets %q, which the load generator sets itself: leave it out", k)
		}
	}
	var options map[string]any
	if raw, ok := m["stream_options"]; ok && (json.Unmarshal(raw, &options) != nil || options == nil) {
		return errors.New(`has a "stream_options" that is no JSON object: write it like {"continuous_usage_stats":true}`)
	}
	return nil
}
