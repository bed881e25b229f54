package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

type urls struct {
	*App
	nats    *redact.URL
	etcd    *[]redact.URL
	metrics *[]redact.URL
	header  *[]string
	name    *string
	out     fmt.Stringer
}

func declareURLs(env ...string) urls {
	a, _, errs := newTest(env...)
	g := a.Group("G")
	u := urls{App: a, out: errs}
	u.nats = g.URL("nats-url", "nats://127.0.0.1:4222", "URL", "nats", func(s string) error {
		if !strings.HasPrefix(s, "nats://") {
			return errors.New("is not a NATS URL")
		}
		return nil
	})
	u.etcd = g.URLs("etcd-endpoints", nil, "etcd")
	u.metrics = g.RepeatedURL("metrics-url", "URL", "metrics", nil)
	u.header = g.Repeated("header", "HEADER", "header", func(s string) error {
		if !strings.Contains(s, ":") {
			return errors.New("has no name")
		}
		return nil
	})
	g.FromFile("header")
	u.name = g.String("name", "", "name")
	g.Addr("addr", ":1", "address")
	return u
}

func TestSecretsOfURLsAreHidden(t *testing.T) {
	u := declareURLs()
	if err := u.Parse([]string{"--nats-url", "nats://u:secret@host:4222", "--etcd-endpoints",
		"http://a:1,http://u:secret@b:2",
		"--metrics-url", "http://h:1/metrics?token=secret", "--name", "http://u:secret@h"}); err != nil {
		t.Fatal(err)
	}
	if u.nats.Whole() != "nats://u:secret@host:4222" || (*u.etcd)[1].Whole() != "http://u:secret@b:2" ||
		(*u.metrics)[0].Whole() != "http://h:1/metrics?token=secret" {
		t.Errorf("the program got %q %q %q", u.nats.Whole(), redact.Wholes(*u.etcd), redact.Wholes(*u.metrics))
	}
	config, err := json.Marshal(u.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(u.Values()), fmt.Sprint(u.Config()), string(config)} {
		for _, want := range []string{"nats://xxxxx@host:4222", "http://a:1,http://xxxxx@b:2",
			"http://h:1/metrics?token=xxxxx", "http://xxxxx@h"} {
			if !strings.Contains(s, want) || strings.Contains(s, "secret") || strings.Contains(s, "file") {
				t.Errorf("%s: want %s, and no secret, and no file", s, want)
			}
		}
	}
}

// TestComplaintsKeepSecrets: a slip in an address must not put its password on the screen and into the journal.
func TestComplaintsKeepSecrets(t *testing.T) {
	for _, c := range []struct {
		args, env []string
		want      string
	}{
		{args: []string{"--nats-url", "svc:secret@host:4222"}, want: "--nats-url xxxxx@host:4222: is not a NATS URL"},
		{env: []string{"LANEWAY_NATS_URL=http://svc:sec/secret@host:4222"},
			want: "LANEWAY_NATS_URL=http://xxxxx@host:4222: is not a NATS URL"},
		{args: []string{"--etcd-endpoints", "root:secret@h:1,,"},
			want: "--etcd-endpoints xxxxx@h:1,,: has an empty item"},
		{args: []string{"--addr", "u:secret@host:x"}, want: "--addr xxxxx@host:x: is not host:port"},
		{args: []string{"--addr", "host:secret@x"}, want: "--addr xxxxx@x: is not host:port"},
		{args: []string{"svc:secret@host:4222"}, want: "xxxxx@host:4222: only flags are taken"},
		{args: []string{"--nats-url:nats://u:secret@host"}, want: "xxxxx@host: there is no such flag"},
		{args: []string{"--name", "--nats-url=nats://u:secret@host"},
			want: "--name: needs a value, but --nats-url=nats://xxxxx@host follows"},
		{args: []string{"--log-level", "http://u:secret@h"}, want: "--log-level http://xxxxx@h: is not known"},
	} {
		u := declareURLs(c.env...)
		if code := u.Run(c.args, func(context.Context, *slog.Logger) error { return nil }); code != ExitFailure {
			t.Errorf("%q: code %d", c.args, code)
		}
		if s := u.out.String(); !strings.HasPrefix(s, "prog: "+c.want) || strings.Contains(s, "secret") {
			t.Errorf("%q %q: %s\nwant %s", c.args, c.env, s, c.want)
		}
	}
	u := declareURLs()
	u.Run(nil, func(_ context.Context, log *slog.Logger) error {
		err := errors.New(`parse "nats://u:secret@h:x": invalid port`)
		log.Warn("trying http://u:secret@h", "url", "http://h/?k=secret", "error", err)
		return err
	})
	if s := u.out.String(); strings.Contains(s, "secret") || strings.Count(s, "xxxxx") != 4 {
		t.Errorf("what other packages say: %s", s)
	}
}

func TestValuesFromFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, two := file("one", "nats://u:secret@one\n"), file("two", "http://h/?k=secret\r\nhttp://i\r\n")
	header, bad, empty := file("header", "Authorization: Bearer secret\n"), file("bad", "svc:secret@h:4222\n"),
		file("empty", "\n")
	keys := file("keys", "A: secret\n\nBearer secret\n")

	u := declareURLs("LANEWAY_NATS_URL=nats://env", "LANEWAY_HEADER_FILE="+header)
	if err := u.Parse([]string{"--nats-url-file", one, "--metrics-url-file", two}); err != nil {
		t.Fatal(err)
	}
	if u.nats.Whole() != "nats://u:secret@one" || !reflect.DeepEqual(redact.Wholes(*u.metrics),
		[]string{"http://h/?k=secret", "http://i"}) ||
		!reflect.DeepEqual(*u.header, []string{"Authorization: Bearer secret"}) {
		t.Errorf("the program got %q %q %q", u.nats.Whole(), redact.Wholes(*u.metrics), *u.header)
	}
	if u.Source("nats-url") != FromFlag || u.Source("header") != FromEnv {
		t.Errorf("sources %d %d", u.Source("nats-url"), u.Source("header"))
	}
	u = declareURLs("LANEWAY_NATS_URL_FILE=" + one)
	if err := u.Parse([]string{"--nats-url", "nats://flag"}); err != nil || u.nats.Whole() != "nats://flag" {
		t.Errorf("a flag beside a file of the environment: %v, %q", err, u.nats.Whole())
	}
	for _, c := range []struct {
		args, env []string
		want      string
	}{
		{args: []string{"--nats-url=nats://a", "--nats-url-file", one}, want: "--nats-url-file " + one +
			": stands beside --nats-url: keep one of the two"},
		{args: []string{"--nats-url-file", bad}, want: "--nats-url-file " + bad +
			": holds xxxxx@h:4222, which is not a NATS URL"},
		{env: []string{"LANEWAY_NATS_URL_FILE=" + empty}, want: "LANEWAY_NATS_URL_FILE=" + empty +
			": the file is empty"},
		{args: []string{"--header-file", keys}, want: "--header-file " + keys +
			": holds \"\", which is empty: give a value\n" +
			"--header-file " + keys + ": holds xxxxx, which has no name"},
		{args: []string{"--header", "Bearer secret"}, want: "--header xxxxx: has no name"},
		{env: []string{"LANEWAY_HEADER=Authorization: Bearer secret\xff"}, want: "LANEWAY_HEADER=xxxxx: is not UTF-8"},
		{args: []string{"--metrics-url-file", dir + "/none"}, want: "--metrics-url-file " + dir + "/none: open"},
	} {
		if err := declareURLs(c.env...).Parse(c.args); err == nil || !strings.HasPrefix(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q %q: %v, want %s", c.args, c.env, err, c.want)
		}
	}
}
