package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		line string
	}{
		{nil, 0, ""},
		{errors.New("etcd is not reachable"), 1, "prog: etcd is not reachable\n"},
		{&ExitError{Code: ExitThreshold, Err: errors.New("ttft_p99 is 300ms")}, 3, "prog: ttft_p99 is 300ms\n"},
		{fmt.Errorf("run: %w", &ExitError{Code: ExitBadRun, Err: errors.New("2 wrong tokens")}), 2,
			"prog: run: 2 wrong tokens\n"},
		{errors.Join(errors.New("a"), errors.New("b")), 1, "prog: a; b\n"},
	} {
		a, _, errs := newTest()
		if code := a.Run(nil, func(context.Context, *slog.Logger) error { return c.err }); code != c.code ||
			errs.String() != c.line {
			t.Errorf("%v: code %d, output %q", c.err, code, errs)
		}
	}
}

func TestCommands(t *testing.T) {
	build := func() (a, plane *App, n *int, out, errs fmt.Stringer) {
		a, o, e := newTest("LANEWAY_STREAMS=7", "LANEWAY_URL=http://x", "LANEWAY_STREAM=1")
		a.Group("Load").String("url", "", "server")
		plane = a.Command("plane", "drives the plane without HTTP")
		n = plane.Group("Load").Int("streams", 1, Min(1), "open streams")
		return a, plane, n, o, e
	}
	a, plane, n, _, errs := build()
	ran := false
	plane.Handle(func(_ context.Context, log *slog.Logger) error {
		ran = true
		log.Info("hello")
		return errors.New("no")
	})
	if code := a.Run([]string{"plane", "--log-format", "json"}, nil); code != 1 || !ran || *n != 7 {
		t.Errorf("code %d, ran %v, streams %d", code, ran, *n)
	}
	lines := errs.String()
	if !strings.Contains(lines, `"msg":"hello"`) || !strings.HasSuffix(lines, "prog plane: no\n") {
		t.Errorf("output %q", lines)
	}
	if !strings.Contains(lines, "LANEWAY_STREAM\"") || !strings.Contains(lines, "LANEWAY_STREAMS") ||
		strings.Contains(lines, "LANEWAY_URL") {
		t.Errorf("the warning about the environment is wrong: %q", lines)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "prog: needs a command: plane\n"},
		{[]string{"plan"}, "prog: plan: is not a command: use plane (did you mean plane?)\n"},
		{[]string{"--log-level", "info", "plane"}, "prog: plane: the command comes first: prog plane [flags]\n"},
	} {
		a, _, _, _, errs := build()
		if code := a.Run(c.args, nil); code != 1 || !strings.HasPrefix(errs.String(), c.want) {
			t.Errorf("%q: code %d, output %q", c.args, code, errs)
		}
	}
}

func TestArguments(t *testing.T) {
	a, _, _ := newTest()
	on := a.Group("G").Bool("on", false, "switch")
	a.AllowArgs("RUN_DIR...")
	if err := a.Parse([]string{"a", "--on", "off", "--", "--b"}); err != nil {
		t.Fatal(err)
	}
	if !*on || !reflect.DeepEqual(a.Args(), []string{"a", "off", "--b"}) {
		t.Errorf("on %v, args %q", *on, a.Args())
	}
}

func TestHelpShowsEverythingAboutAFlag(t *testing.T) {
	a, out, errs := newTest()
	g := a.Group("Transport settings")
	g.Int("lanes", 1, Range(1, 16).Unit("connections"), "lanes to each peer")
	g.Size("stream-window", 64*KiB, Range(4*KiB, 16*MiB), "unconsumed bytes")
	g.Duration("active-ping-interval", time.Second, Any().OrZero("as idle"), "PING interval")
	a.Alias("l", "lanes")
	if code := a.Run([]string{"--bogus", "--help"},
		func(context.Context, *slog.Logger) error { return nil }); code != 0 || errs.Len() > 0 {
		t.Fatalf("code %d, errors %q", code, errs)
	}
	for _, want := range []string{
		"prog: does things\n", "\nTransport settings:\n",
		"  -l, --lanes CONNECTIONS\n        lanes to each peer\n        [default 1; 1 to 16; LANEWAY_LANES]\n",
		"  --stream-window SIZE\n        unconsumed bytes\n        [default 64KiB; 4KiB to 16MiB; " +
			"LANEWAY_STREAM_WINDOW]\n",
		"[default 1s; 0s or more, 0 = as idle; LANEWAY_ACTIVE_PING_INTERVAL]",
		"[default text; one of text | json; LANEWAY_LOG_FORMAT]",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestVersion(t *testing.T) {
	a, out, _ := newTest()
	if code := a.Run([]string{"--version"}, nil); code != 0 {
		t.Errorf("code %d", code)
	}
	if s := out.String(); !strings.HasPrefix(s, "prog ") || !strings.Contains(s, "revision ") ||
		!strings.Contains(s, " go1.") {
		t.Errorf("version text %q", s)
	}
}

func TestNeedFiles(t *testing.T) {
	if err := NeedFiles(3, "the test"); err != nil {
		t.Error(err)
	}
	limit, ok := FileLimit()
	if !ok || limit > 1<<40 {
		t.Skip("this system has no limit of open files to run into")
	}
	err := NeedFiles(int(limit)+1, "--concurrency 8192")
	var fe *FilesError
	if !errors.As(err, &fe) || fe.Have != limit || fe.Need != int(limit)+1 {
		t.Fatalf("got %v", err)
	}
	if s := err.Error(); !strings.Contains(s, "--concurrency 8192 needs") || !strings.Contains(s, "ulimit -n") {
		t.Errorf("text %q", s)
	}
}

func TestWithoutSettings(t *testing.T) {
	env := []string{"PATH=/bin", "LANEWAY_LANES=4", "HOME=/"}
	if got := WithoutSettings(env); !reflect.DeepEqual(got, []string{"PATH=/bin", "HOME=/"}) || len(env) != 3 ||
		env[1] != "LANEWAY_LANES=4" {
		t.Errorf("got %q from %q", got, env)
	}
}
