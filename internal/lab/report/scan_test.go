package report

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlainRowsReadAsJSON holds the fast reader to encoding/json: rows of all shapes read the same by both, and lines
// that are mutilated in any place are rows to both or to neither.
func TestPlainRowsReadAsJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	full := row(1, 1000, 5, 10, 3)
	full.Worker, full.Process, full.Lane, full.Retries, full.ErrorType = "w-1", "p-1", "quic/0", 2, "x"
	full.FirstTokens = 3
	bare := failed(2, 700, "timeout")
	quoted := full
	quoted.Worker = "é \"\n"
	agree := func(line []byte) {
		t.Helper()
		want, wantErr := ParseRow(line)
		s := rowScanner{names: map[string]string{}}
		var got Row
		gotErr := s.parse(line, &got)
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && got != want {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v, %v", line, got, gotErr, want, wantErr)
		}
	}
	plain := 0
	for _, r := range []Row{full, bare, quoted} {
		line := r.AppendJSON(nil)
		agree(line)
		s := rowScanner{names: map[string]string{}}
		if s.plain(line, new(Row)) {
			plain++
		}
		for range 4_000 {
			b := bytes.Clone(line)
			i := rng.IntN(len(b))
			switch rng.IntN(3) {
			case 0:
				b[i] = "{}\",:0-9\\e. \x00\xff"[rng.IntN(14)]
			case 1:
				b = append(b[:i], b[i+1:]...)
			case 2:
				b = append(b[:i], append([]byte{"{}\",:0-9\\e. "[rng.IntN(12)]}, b[i:]...)...)
			}
			agree(b)
		}
	}
	if plain != 2 {
		t.Errorf("%d rows went the fast way, want the 2 plain ones", plain)
	}
	for _, line := range []string{`{}`, `{`, ``, `null`, `{"id":"a","phase":"measured","end":"complete","status":01}`,
		`{"id":"a","phase":"measured","end":"complete","sent_ns":-}`,
		`{"id":"a","phase":"measured","end":"complete","sent_ns":1e3}`,
		`{"id":"a","phase":"measured","end":"complete","first_ns":-5}`,
		`{"id":"a","phase":"measured","end":"complete","new_field":[1]}`,
		`{"id":"a","phase":"measured","end":"complete","sent_ns":99999999999999999999}`} {
		agree([]byte(line))
	}
}

func TestScanDirCountsEachRequestOnce(t *testing.T) {
	dir := t.TempDir()
	a, b, c := row(1, 0, 1, 1, 2), row(2, 0, 1, 1, 2), row(3, 0, 1, 1, 2)
	c.First = c.Last + 1 // first token after the last
	var text []byte
	for _, r := range []Row{a, a, c} {
		text = append(r.AppendJSON(text), '\n')
	}
	text = append(text, "{\"id\":\""+strings.Repeat("x", 3*maxRowBytes)+"\"}\n\n"...) // one line that is far too long
	text = append(text, "not a row\n"...)
	text = b.AppendJSON(text) // no line end: the load generator was killed
	if err := os.WriteFile(filepath.Join(dir, RowsFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	var got []string
	bad, err := ScanDir(dir, func(r *Row) { got = append(got, r.ID) })
	if err != nil || fmt.Sprint(got) != "[r1 r2]" {
		t.Errorf("rows %v, %v", got, err)
	}
	if bad.Count != 4 || len(bad.First) != 4 {
		t.Fatalf("bad %+v", bad)
	}
	var order *OrderError
	var twice *TwiceError
	long := false
	for _, e := range bad.First {
		long = long || errors.Is(e, ErrLongRow) && e.Line == 4
		errors.As(e, &order)
		errors.As(e, &twice)
	}
	if !long || order == nil || order.Later != "last_ns" || twice == nil || twice.ID != "r1" {
		t.Errorf("reasons %v", bad.First)
	}
	if _, err := ScanDir(t.TempDir(), func(*Row) {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func BenchmarkScanRows(b *testing.B) {
	r := row(123456, 1000, 5, 10, 3)
	r.Worker, r.Process, r.Lane = "worker-1-2", "worker-1", "quic/0"
	text := bytes.Repeat(append(r.AppendJSON(nil), '\n'), 10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if bad, err := ScanRows(bytes.NewReader(text), func(*Row) {}); err != nil || bad.Count > 0 {
			b.Fatal(bad, err)
		}
	}
}
