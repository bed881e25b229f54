package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "",
		"127.0.0.1:4222":                   "127.0.0.1:4222",
		":9090":                            ":9090",
		"nats://127.0.0.1:4222":            "nats://127.0.0.1:4222",
		"nats://svc:pass@host:4222":        "nats://xxxxx@host:4222",
		"nats://token@host:4222":           "nats://xxxxx@host:4222",
		"svc:pass@host:4222":               "xxxxx@host:4222",
		"http://root:pa/ss@host:2379":      "http://xxxxx@host:2379",
		"http://root:pa?s#s@host:2379":     "http://xxxxx@host:2379",
		"nats://svc/pass@host":             "nats://xxxxx@host",
		"nats://svc:9/pass@host:4222":      "nats://xxxxx@host:4222",
		"nats://svc:9?pass@host:4222":      "nats://xxxxx@host:4222",
		"tls://svc:9#pass@host:4222":       "tls://xxxxx@host:4222",
		"nats://svc:p@ss@host:4222":        "nats://xxxxx@host:4222",
		"nats://svc:pa ss@host:4222":       "nats://xxxxx@host:4222",
		"nats://svc:pass@host:port":        "nats://xxxxx@host:port",
		"nats://svc:%zz@host":              "nats://xxxxx@host",
		"nats://a:pass@h1,nats://b:ss@h2":  "nats://xxxxx@h1,nats://xxxxx@h2",
		"nats://a:pa,ss@h1, tls://b:ss@h2": "nats://xxxxx@h1, tls://xxxxx@h2",
		"h1:1,u:pass@h2:2":                 "xxxxx@h2:2",
		"http://h:1/v1?api_key=pass":       "http://h:1/v1?api_key=xxxxx",
		"http://h:1/v1?a=pass&b=pass&pass": "http://h:1/v1?a=xxxxx&b=xxxxx&xxxxx",
		"http://h:1/v1?a=pass@h":           "http://h:1/v1?a=xxxxx",
		"http://h:1/@me/v1":                "http://h:1/@me/v1",
		"http://h:1/v1#pass":               "http://h:1/v1#xxxxx",
		"h:1?token=pass":                   "h:1?token=xxxxx",
		"ftp:pass@x://h:1":                 "xxxxx@x://h:1",
		"unix:/run/etcd.sock":              "unix:/run/etcd.sock",
	} {
		if got := Address(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
		if got := Address(want); got != want {
			t.Errorf("%q, shown again, is %q", want, got)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"mail a@b.c about x://":                           "mail a@b.c about x://",
		`parse "nats://u:pass@h:port": invalid port`:      `parse "nats://xxxxx@h:port": invalid port`,
		"cannot reach http://u:pass@h:1/?k=pass: refused": "cannot reach http://xxxxx@h:1/?k=xxxxx: refused",
		`{"image":"http://h/a.png?key=pass","n":1}`:       `{"image":"http://h/a.png?key=xxxxx","n":1}`,
	} {
		if got := Text(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

func TestArgs(t *testing.T) {
	got := Args([]string{"/bin/frontend", "--nats-url=nats://u:pass@h:1", "--etcd-endpoints", "http://u:pass@h:2",
		"--nats-url", "u:pass@h", "-x=a?b=c", "--name", "a=b"})
	want := "/bin/frontend --nats-url=nats://xxxxx@h:1 --etcd-endpoints http://xxxxx@h:2 --nats-url xxxxx@h -x=a?b=c " +
		"--name a=b"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("%s\nwant\n%s", s, want)
	}
}

// TestURLNeverShowsItsSecret: whatever prints it, and wherever it stands.
func TestURLNeverShowsItsSecret(t *testing.T) {
	const whole = "nats://svc:pass@host:4222/?key=pass"
	type config struct {
		URL  URL   `json:"url"`
		List []URL `json:"list"`
		own  URL
		deep struct{ list []URL }
	}
	c := config{URL: New(whole), List: URLs(whole, whole), own: New(whole)}
	c.deep.list = URLs(whole)
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, &c, c.URL, &c.URL, c.List, map[string]any{"a": c.URL}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "url", c.URL, "config", c, "list", c.List)
	}
	if s := out.String(); strings.Contains(s, "pass") || strings.Contains(s, fmt.Sprintf("%x", "pass")) ||
		!strings.Contains(s, `"nats://xxxxx@host:4222/?key=xxxxx"`) {
		t.Error(s)
	}
	if c.URL.Whole() != whole || !(URL{}).Empty() || !New("").Empty() || New("").Whole() != "" ||
		Wholes(c.List)[1] != whole {
		t.Error("the program does not get what was set")
	}
}

func TestError(t *testing.T) {
	raw := "http://u:pa ss@h:1/?key=pass"
	err := fmt.Errorf("models: %w", &url.Error{Op: "Get", URL: raw, Err: io.EOF})
	got := Error(err)
	if got.Error() != `models: Get "http://xxxxx@h:1/?key=xxxxx": EOF` || !errors.Is(got, io.EOF) {
		t.Errorf("%v", got)
	}
	if got := Error(errors.New("svc:pass@h is bad"), New("svc:pass@h")); got.Error() != "xxxxx@h is bad" {
		t.Errorf("%v", got)
	}
	for raw, want := range map[string]string{
		"http://svc:kk/kk@h:1":    `parse "http://xxxxx@h:1": invalid port "xxxxx" after host`,
		"http://svc:kk%zz@h:1":    `parse "http://xxxxx@h:1": invalid URL escape "xxxxx"`,
		"http://svc:kk\"/kk@h:1":  `parse "http://xxxxx@h:1": invalid port "xxxxx" after host`,
		"http://svc:kk\\\"/k@h:1": `parse "http://xxxxx@h:1": invalid port "xxxxx" after host`,
	} {
		_, err := url.Parse(raw)
		if got := fmt.Sprint(Error(err)); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	if Error(nil) != nil || Error(io.EOF) != io.EOF {
		t.Error("an error without secrets is changed")
	}
}
