package seldom

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lines is a bounded logger's output, a line an element.
type lines struct{ bytes.Buffer }

func (l *lines) take() []string {
	s := strings.TrimSpace(l.String())
	l.Reset()
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

func to(l *lines) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string,
		a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAStormIsAFewLinesAndACount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log := Logger(to(&out))
		for i := range 5000 {
			log.Warn("lane refused", "peer", i)
		}
		log.Info("lane refused") // another kind
		if got := out.take(); len(got) != Burst+1 || got[0] != `level=WARN msg="lane refused" peer=0` {
			t.Errorf("the log says %q", got)
		}
		time.Sleep(Every - 1)
		log.Warn("lane refused")
		expect(t, out.take())
		time.Sleep(time.Nanosecond)
		log.With("peer", 7).Warn("lane refused")
		expect(t, out.take(), fmt.Sprintf(`level=WARN msg="lane refused" peer=7 left_out=%d`, 5000-Burst+1))
		log.Warn("lane refused")
		expect(t, out.take(), `level=WARN msg="lane refused"`)
	})
}

// TestTheCountOfAStormThatEnded comes with the next line of any kind.
func TestTheCountOfAStormThatEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		log := Logger(to(&out)).With("plane", "tcp")
		for range Burst + 3 {
			log.Warn("lane down")
		}
		out.take()
		time.Sleep(Every)
		log.Info("link up")
		expect(t, out.take(), `level=WARN msg="lines were left out" of="lane down" left_out=3`,
			`level=INFO msg="link up" plane=tcp`)
		log.Info("link up")
		expect(t, out.take(), `level=INFO msg="link up" plane=tcp`)
	})
}

func TestDebugIsNotBounded(t *testing.T) {
	var out lines
	log := Logger(to(&out))
	for range 100 {
		log.Debug("lane up")
	}
	if got := out.take(); len(got) != 100 {
		t.Errorf("%d lines", len(got))
	}
}

// TestKindsAreBounded: even messages that vary, against the rule, cannot fill the memory or the log for long.
func TestKindsAreBounded(t *testing.T) {
	var out lines
	log := Logger(to(&out))
	for i := range 10 * maxKinds {
		log.Warn(fmt.Sprint("lane ", i))
	}
	if got := out.take(); len(got) != maxKinds+Burst {
		t.Errorf("%d lines", len(got))
	}
	if n := len(log.Handler().(*handler).kinds); n != maxKinds+1 {
		t.Errorf("%d kinds are remembered", n)
	}
	one := One(log)
	for i := range 100 {
		one.Warn(fmt.Sprint("http: TLS handshake error from ", i))
	}
	if got := out.take(); len(got) != Burst {
		t.Errorf("%d lines of one kind", len(got))
	}
}

func TestWrapping(t *testing.T) {
	Logger(nil).Warn("dropped") // must not panic
	log := Logger(to(new(lines)))
	if Logger(log) != log || Logger(log.With("a", 1)).Handler().(*handler).limits != log.Handler().(*handler).limits {
		t.Error("a bounded logger is bounded again")
	}
}
