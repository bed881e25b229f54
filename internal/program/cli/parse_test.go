package cli

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPrecedenceFlagEnvironmentDefault(t *testing.T) {
	a, _, _ := newTest("LANEWAY_LANES=3", "LANEWAY_UDP_RECV_BUFFER=2MiB", "LANEWAY_DIAL=")
	g := a.Group("Transport settings")
	lanes := g.Int("lanes", 1, Range(1, 16), "connections")
	buf := g.Size("udp-recv-buffer", 8*MiB, Any(), "buffer")
	dial := g.Enum("dial", "eager", []string{"eager", "on-demand"}, "when")
	gap := g.Duration("batch-gap-max", 2*time.Millisecond, Range(0, 5*time.Millisecond), "gap")
	if err := a.Parse([]string{"--lanes", "4"}); err != nil {
		t.Fatal(err)
	}
	if *lanes != 4 || *buf != 2*MiB || *dial != "eager" || *gap != 2*time.Millisecond {
		t.Fatalf("got lanes %d, buffer %d, dial %q, gap %v", *lanes, *buf, *dial, *gap)
	}
	for name, want := range map[string]Source{"lanes": FromFlag, "udp-recv-buffer": FromEnv, "dial": FromDefault,
		"batch-gap-max": FromDefault} {
		if got := a.Source(name); got != want {
			t.Errorf("source of %s is %d, want %d", name, got, want)
		}
	}
	want := map[string]string{"lanes": "4", "udp-recv-buffer": "2MiB", "dial": "eager", "batch-gap-max": "2ms",
		"log-format": "text", "log-level": "info"}
	if got := a.Values(); !reflect.DeepEqual(got, want) {
		t.Errorf("values are %v, want %v", got, want)
	}
	config := a.Config()
	if config["udp_recv_buffer"] != int64(2*MiB) || config["lanes"] != 4 || config["batch_gap_max"] != "2ms" {
		t.Errorf("config is %v", config)
	}
}

func TestFlagForms(t *testing.T) {
	for _, c := range []struct {
		args                  []string
		n                     int
		on                    bool
		list, repeated, extra []string
	}{
		{args: nil, n: 5, on: true, list: []string{"x"}},
		{args: []string{"-c", "7", "--urgent=off"}, n: 7, list: []string{"x"}},
		{args: []string{"-c=8", "-urgent", "off", "--list", "a, b"}, n: 8, list: []string{"a", "b"}},
		{args: []string{"--count", "-3", "--urgent"}, n: -3, on: true, list: []string{"x"}},
		{args: []string{"--count=1", "--count=2", "--r", "a,b", "--r=c"}, n: 2, on: true, list: []string{"x"},
			repeated: []string{"a,b", "c"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			a, _, _ := newTest()
			g := a.Group("G")
			n := g.Int("count", 5, Any(), "how many")
			on := g.Bool("urgent", true, "switch")
			list := g.List("list", []string{"x"}, "items")
			rep := g.Repeated("r", "URL", "urls", nil)
			a.Alias("c", "count")
			if err := a.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			if *n != c.n || *on != c.on || !reflect.DeepEqual(*list, c.list) || !reflect.DeepEqual(*rep, c.repeated) {
				t.Errorf("got %d %v %q %q", *n, *on, *list, *rep)
			}
		})
	}
}

func TestFlagReplacesRepeatedFromEnvironment(t *testing.T) {
	a, _, _ := newTest("LANEWAY_METRICS_URL=http://env")
	urls := a.Group("G").Repeated("metrics-url", "URL", "where metrics are", nil)
	if err := a.Parse(nil); err != nil || !reflect.DeepEqual(*urls, []string{"http://env"}) {
		t.Fatalf("from the environment: %q, %v", *urls, err)
	}
	b, _, _ := newTest("LANEWAY_METRICS_URL=http://env")
	urls = b.Group("G").Repeated("metrics-url", "URL", "where metrics are", nil)
	if err := b.Parse([]string{"--metrics-url", "http://a", "--metrics-url", "http://b"}); err != nil ||
		!reflect.DeepEqual(*urls, []string{"http://a", "http://b"}) {
		t.Fatalf("from flags: %q, %v", *urls, err)
	}
}

func TestEveryComplaintNamesFlagValueAndFix(t *testing.T) {
	a, _, errs := newTest("LANEWAY_IDLE_TIMEOUT=15", "LANEWAY_LOG_LEVEL=loud")
	g := a.Group("Transport settings")
	g.Int("lanes", 1, Range(1, 16), "connections")
	g.Int("max-mtu", 0, Range(1200, 1452).OrZero("discovery"), "packet size")
	g.Size("stream-window", 64*KiB, Range(4*KiB, 16*MiB), "window")
	g.Duration("idle-timeout", 15*time.Second, Any(), "idle")
	g.EnumList("response-plane", []string{"quic", "tls"}, []string{"tcp", "tls", "quic"}, "planes")
	g.Addr("admin-addr", ":9090", "admin")
	g.Bool("urgent", true, "urgent")
	g.Float("share", 0, Range(0.0, 1.0), "share")
	g.String("nats-url", "", "nats")
	a.Check(func() error { return errors.New("--a and --b exclude each other") })
	code := a.Run([]string{"--lanes", "99", "--lane", "3", "--max-mtu=1500", "--stream-window", "1KiB",
		"--response-plane", "quic,quik",
		"--admin-addr", "9090", "--urgent=maybe", "--share", "NaN", "stray", "--nats-url"},
		func(context.Context, *slog.Logger) error { t.Error("ran in spite of errors"); return nil })
	if code != ExitFailure {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"prog: --lanes 99: out of range: use 1 to 16",
		"prog: --lane: there is no such flag (did you mean --lanes?)",
		"prog: --max-mtu 1500: out of range: use 1200 to 1452, or 0 = discovery",
		"prog: --stream-window 1KiB: out of range: use 4KiB to 16MiB",
		`prog: --response-plane quic,quik: "quik" is not known: use tcp, tls, quic (did you mean quic?)`,
		"prog: --admin-addr 9090: is not host:port: write it like :9090, 127.0.0.1:9090 or [::1]:9090",
		"prog: --urgent maybe: is not a switch: use on or off",
		"prog: --share NaN: is not a number: use 0 to 1",
		"prog: stray: only flags are taken",
		"prog: --nats-url: needs a value: --nats-url TEXT",
		"prog: LANEWAY_IDLE_TIMEOUT=15: has no unit: write 15ms, 15s or 15m",
		"prog: LANEWAY_LOG_LEVEL=loud: is not known: use debug, info, warn, error",
		"prog: --a and --b exclude each other",
		"prog: all flags and their ranges: prog --help",
	} {
		if !strings.Contains(errs.String(), want+"\n") {
			t.Errorf("no line %q", want)
		}
	}
	if n := strings.Count(errs.String(), "\n"); n != 14 {
		t.Errorf("%d lines instead of 14", n)
	}
	if t.Failed() {
		t.Log(errs)
	}
}

// TestTextThatIsNotUTF8: it would panic as a label, and stand as U+FFFD in a record and in a report.
func TestTextThatIsNotUTF8(t *testing.T) {
	const latin1, fix = "caf\xe9", `"caf\xe9": is not UTF-8 text: write it in UTF-8`
	build := func(env ...string) *App {
		a, _, _ := newTest(env...)
		g := a.Group("G")
		g.String("name", "", "text")
		g.List("list", nil, "items")
		g.Repeated("header", "HEADER", "lines", nil)
		return a
	}
	for _, c := range []struct {
		args, env []string
		want      string
	}{
		{args: []string{"--name", latin1}, want: "--name " + fix},
		{args: []string{"--list=" + latin1}, want: "--list " + fix},
		{args: []string{"--header", latin1}, want: "--header " + fix},
		{env: []string{"LANEWAY_NAME=" + latin1}, want: "LANEWAY_NAME=" + fix},
		{args: []string{"--" + latin1}, want: `"--caf\xe9": there is no such flag`},
		{args: []string{latin1}, want: `"caf\xe9": only flags are taken`},
	} {
		if err := build(c.env...).Parse(c.args); err == nil || err.Error() != c.want {
			t.Errorf("%q %q: %v, want %s", c.args, c.env, err, c.want)
		}
	}
	a := build()
	a.AllowArgs("DIR...")
	if err := a.Parse([]string{latin1}); err == nil || err.Error() != fix {
		t.Errorf("an argument: %v", err)
	}
	if err := build("LANEWAY_NAME=café").Parse([]string{"--list", "日本"}); err != nil {
		t.Errorf("UTF-8 text: %v", err)
	}
}

func TestFlagErrorIsTyped(t *testing.T) {
	a, _, _ := newTest()
	a.Group("G").Int("lanes", 1, Range(1, 16), "connections")
	err := a.Parse([]string{"--lanes", "x"})
	var fe *FlagError
	if !errors.As(err, &fe) || fe.Flag != "lanes" || fe.Value != "x" {
		t.Fatalf("got %#v", err)
	}
}

func TestValueMissingBeforeNextFlag(t *testing.T) {
	a, _, _ := newTest()
	g := a.Group("G")
	g.String("label", "", "label")
	lanes := g.Int("lanes", 1, Range(1, 16), "connections")
	err := a.Parse([]string{"--label", "--lanes", "3"})
	if err == nil || !strings.Contains(err.Error(), "--label: needs a value, but --lanes follows") {
		t.Fatalf("got %v", err)
	}
	if *lanes != 3 {
		t.Errorf("lanes %d: parsing did not go on", *lanes)
	}
}

func TestBadDeclarationsPanic(t *testing.T) {
	for name, declare := range map[string]func(g *Group){
		"default out of range": func(g *Group) { g.Int("n", 0, Range(1, 2), "n") },
		"default unknown word": func(g *Group) { g.Enum("e", "c", []string{"a", "b"}, "e") },
		"declared twice":       func(g *Group) { g.Int("n", 1, Any(), "n"); g.Int("n", 1, Any(), "n") },
		"alias for nothing":    func(g *Group) { g.app.Alias("x", "nothing") },
		"empty range":          func(g *Group) { Range(2, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			a, _, _ := newTest()
			a.flags.SetOutput(new(strings.Builder)) // package flag announces its panics
			declare(a.Group("G"))
		})
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "1": 1, "64KiB": 64 << 10, "8MiB": 8 << 20, "8 mib": 8 << 20,
		"1GiB": 1 << 30,
		"2TiB": 2 << 40, "100B": 100, "-1KiB": -1024, "8388607TiB": 8388607 << 40} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "MiB", "8MB", "8K", "1.5MiB", "8388608TiB", "9223372036854775808", "x"} {
		if n, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, no error", in, n)
		}
	}
	for n, want := range map[int64]string{0: "0", 1000: "1000", 1024: "1KiB", 8 << 20: "8MiB", 1<<20 +
		1024: "1025KiB"} {
		got := FormatSize(n)
		if back, err := ParseSize(got); got != want || err != nil || back != n {
			t.Errorf("FormatSize(%d) = %q, read back as %d, %v", n, got, back, err)
		}
	}
}

func TestDurationsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 10 * time.Minute: "10m", time.Hour: "1h",
		90 * time.Second:       "1m30s",
		250 * time.Millisecond: "250ms", time.Hour + time.Second: "1h0m1s", 20 * time.Hour: "20h"} {
		if got := FormatDuration(d); got != want {
			t.Errorf("FormatDuration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"udp-recv-buffer", "udp-send-buffer", "lanes", "resume-timeout"}
	for in, want := range map[string]string{"lane": "lanes", "udp-recv-bufer": "udp-recv-buffer",
		"udp-recv": "udp-recv-buffer",
		"resume":   "resume-timeout", "udp": "", "zzz": "", "LANES": "lanes"} {
		if got := nearest(in, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}
