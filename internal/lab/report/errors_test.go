package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestErrorKinds(t *testing.T) {
	var k ErrorKinds
	add := func(status int, kind, said string) (ErrorKind, bool) {
		return k.Add(&Row{Ended: EndFailed, Status: status, ErrorType: kind}, said)
	}
	for i := range 3 {
		if e, first := add(503, "a", "gone"); first != (i == 0) || e.Message != "gone" {
			t.Errorf("%+v %v", e, first)
		}
	}
	for i := range 100 { // each message names its request
		add(500, "b", fmt.Sprint("request ", i))
	}
	list := k.List()
	if len(list) != 1+maxMessages+1 || list[0] != (ErrorKind{End: EndFailed, Status: 500, Type: "b",
		Count: 100 - maxMessages}) || list[1].Count != 3 {
		t.Errorf("%+v", list)
	}
	for i := range 2 * maxKinds {
		add(500, fmt.Sprint("made up ", i), "")
	}
	total := 0
	for _, e := range k.List() {
		total += e.Count
	}
	if n := len(k.List()); n > maxKinds+1 || total != 103+2*maxKinds {
		t.Errorf("%d kinds of %d requests", n, total)
	}
	var both ErrorKinds
	both.Join(list)
	both.Join(list)
	if sum := both.List(); len(sum) != len(list) || sum[1].Count != 6 || sum[1].Message != "gone" {
		t.Errorf("%+v", sum)
	}
	if new(ErrorKinds).List() != nil {
		t.Error("kinds of nothing")
	}
}

// TestTypesAreBounded: the counts by type of a window do not grow with the types that a server makes up.
func TestTypesAreBounded(t *testing.T) {
	var by map[string]int
	for i := range 3 * maxKinds {
		countType(&by, fmt.Sprint("made up ", i))
		countType(&by, "made up 0")
	}
	if len(by) != maxKinds+1 || by["made up 0"] != 3*maxKinds+1 || by[otherTypes] != 2*maxKinds {
		t.Errorf("%d types, %d of the first, %d others", len(by), by["made up 0"], by[otherTypes])
	}
}

func TestMessagesAreCut(t *testing.T) {
	for said, want := range map[string]string{
		" a\n": "a", "": "", "a\xffb": "a\uFFFDb", strings.Repeat("x", 600): strings.Repeat("x", maxMessage), "x" +
			strings.Repeat("é", 300): "x" + strings.Repeat("é", 249),
		strings.Repeat("\xff", 600): strings.Repeat("\uFFFD", 1),
	} {
		if got := cutMessage(said); got != want || !utf8.ValidString(got) || len(got) > maxMessage {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

func TestUnusualTimes(t *testing.T) {
	if After(5, math.MaxInt64) != math.MaxInt64 || After(math.MaxInt64, 1) != math.MaxInt64 || After(2, 3) != 5 ||
		After(-1, math.MaxInt64) != math.MaxInt64-1 {
		t.Error("the end of the clock")
	}
}

// TestBundledRows: ITL divides by the tokens after the first chunk, where they are known.
func TestBundledRows(t *testing.T) {
	ms := int64(time.Millisecond)
	for _, c := range []struct {
		tokens, chunks, first int
		want                  float64 // ms; 0 = none
	}{{5, 5, 0, 5}, {5, 5, 1, 5}, {5, 2, 4, 20}, {5, 2, 0, 5}, {5, 1, 5, 0}, {5, 1, 0, 0}, {5, 2, 5, 0}, {1, 1, 1, 0},
		{Absent, 5, 1, 0}} {
		r := Row{First: 10 * ms, Last: 30 * ms, OutputTokens: c.tokens, Chunks: c.chunks, FirstTokens: c.first}
		if v, ok := r.ITL(); v != c.want*float64(ms) || ok != (c.want > 0) {
			t.Errorf("%+v: %v %v", c, v/float64(ms), ok)
		}
	}
	mark := func(rows ...Row) string {
		var run Run
		MarkRows(&run, rows)
		return strings.Join(run.Marks, ", ")
	}
	of := func(tokens, chunks int) Row {
		r := row(1, 0, 1, 1, tokens)
		r.Chunks = chunks
		return r
	}
	warm, lost := of(50, 1), failed(2, 1, "x")
	warm.Phase, lost.OutputTokens, lost.Chunks = PhaseWarmup, 50, 1
	for want, rows := range map[string][]Row{
		"": {of(11, 10), of(50, 0), warm, lost}, "bundled": {of(12, 10)}, "no usage": {of(Absent, 10), of(11, 10)},
		"bundled, no usage": {of(Absent, 10), of(20, 10), of(2, 2)},
	} {
		if got := mark(rows...); got != want {
			t.Errorf("marks %q, want %q", got, want)
		}
	}
}

// TestBundledIsShown: a bundled run has its chunk gaps beside ITL, wherever ITL is.
func TestBundledIsShown(t *testing.T) {
	dir, run := fullRun(t, "tcp")
	run.Mark(MarkBundled)
	if err := WriteRun(dir, run); err != nil {
		t.Fatal(err)
	}
	text, _ := pageOf(t, dir)
	head, _, _ := strings.Cut(text, `<section id="curves">`)
	if !strings.Contains(head, "chunk gap p50") || !strings.Contains(head, `data-f="raw.icl_ms.p99"`) {
		t.Error("no chunk gaps in the headline")
	}
	var arms strings.Builder
	if err := PrintArms(&arms, []*Run{run, run}, func(int) string { return "arm" }); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(arms.String(), "\n")
	if !strings.Contains(lines[0], "ITL p99  chunk gap p50  chunk gap p99") || len(strings.Fields(lines[1])) != 18 {
		t.Errorf("arms\n%s", arms.String())
	}
}

// TestNamesAreUnique: runs that begin in the same millisecond have folders of their own.
func TestNamesAreUnique(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	seen := map[string]bool{}
	for range 1000 {
		d := DefaultDir("loadgen", at)
		if seen[d] || !strings.HasPrefix(d, "runs/loadgen-20260102-030405.006-") {
			t.Fatalf("%s, again %v", d, seen[d])
		}
		seen[d] = true
	}
}
