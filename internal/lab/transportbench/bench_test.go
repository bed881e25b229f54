package transportbench

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func server(t *testing.T) string {
	t.Helper()
	s, err := StartServer(t.Context(), "127.0.0.1:0", nil,
		func(host string) Handler { return NewHandler(host, slog.New(slog.DiscardHandler)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr()
}

// TestEveryTableHasEveryCell runs all tables with few messages over real lanes.
func TestEveryTableHasEveryCell(t *testing.T) {
	r, err := Execute(t.Context(), Config{Connect: server(t), Planes: []string{"tcp", "quic"}, Tables: Tables(),
		Messages: 64, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, tab := range r.Tables {
		for _, row := range tab.Rows {
			for _, col := range tab.Columns {
				values := tab.Cells[Key(row, col)]
				if len(values) != 1 {
					t.Errorf("%s: %s has %d values", tab.Title, Key(row, col), len(values))
				}
				for _, v := range values {
					if v.Number <= 0 {
						t.Errorf("%s: %s is %v", tab.Title, Key(row, col), v)
					}
					quic := strings.HasPrefix(col, "quic") || strings.Contains(col, "the server")
					if quic && !strings.Contains(tab.Title, "one lane") && (!strings.Contains(v.Note, "socket ") ||
						!strings.Contains(v.Note, "library ") || !strings.Contains(v.Note, "lost ")) {
						t.Errorf("%s: %s says no drops: %q", tab.Title, Key(row, col), v.Note)
					}
				}
			}
		}
		rows[tab.Title] = len(tab.Rows) * len(tab.Columns)
		var out strings.Builder
		if err := benchtable.Print(&out, tab.Shown()); err != nil || strings.Count(out.String(), "\n") < len(tab.Rows)+
			2 {
			t.Errorf("%v\n%s", err, &out)
		}
	}
	total := 0
	for _, n := range rows {
		total += n
	}
	if want := 7*4 + 4*2 + 4*2 + 3*2; len(rows) != 4 || total != want {
		t.Errorf("%d tables, %d cells, expected 4, %d: %v", len(rows), total, want, rows)
	}
	for _, tab := range r.Tables {
		for _, ratio := range tab.Ratios {
			for _, row := range tab.Rows {
				if got := tab.ratio(row, ratio); got.N != 1 || got.Median <= 0 {
					t.Errorf("%s: %s of %s is %v", tab.Title, ratio.Title, row, got)
				}
			}
		}
	}
	if n := len(r.Tables[0].Ratios); n != 1 {
		t.Errorf("%d ratios of messages, expected that of QUIC to TCP", n)
	}
}

// TestTableShowsRangesAndTheFirst: what a reader sees of three repetitions, of a cell that was not measured, and the
// ratio of the medians.
func TestTableShowsRangesAndTheFirst(t *testing.T) {
	tab := Table{Title: "T", Note: "N", Ratios: []Ratio{{Title: "b / a", Column: "b", Base: "a"},
		{Title: "a, to r", Column: "a", Base: "a", Rows: map[string]string{"r": "r", "s": "r"}}}}
	for i, v := range []float64{20000, 10000, 40000} {
		tab.Add("r", "a", Value{Number: v})
		tab.Add("r", "b", Value{Number: v / 2, Note: []string{"x", "y", "x"}[i]})
	}
	tab.Add("s", "a", Value{Number: 1})
	var out strings.Builder
	if err := benchtable.Print(&out, tab.Shown()); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	if want := "T a b b / a a, to r r 10,000 to 40,000 (first 20,000) 5,000 to 20,000 (first 10,000) [x; y] 0.50 " +
		"[0.50-0.50] 1.00 [1.00-1.00] s 1.0 - - 0.00 N"; got != want {
		t.Errorf("%q, expected %q", got, want)
	}
}

// TestMessagesThatAreLostAreAnError: a server that has not counted everything is found out.
func TestMessagesThatAreLostAreAnError(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	done := make(chan struct{})
	go func() { // ends with the pipe
		defer close(done)
		_ = serveLane(skipping{b})
	}()
	err := toServer(pipeConn{a}, make([]byte, 100), 3)
	a.Close()
	<-done
	if wrong, ok := err.(*WrongCountError); !ok || wrong.Want != 3 || wrong.Got != 2 {
		t.Errorf("%v", err)
	}
	// The same of messages that the server sends.
	var sent bytes.Buffer
	w := bufio.NewWriter(&sent)
	if err := errors.Join(send(w, ask(2, 100)), w.Flush()); err != nil {
		t.Fatal(err)
	}
	a, b = net.Pipe()
	defer b.Close()
	done = make(chan struct{})
	go func() { // ends with what it writes
		defer close(done)
		_, _, _ = readMessage(bufio.NewReader(b), nil)
		_, _ = b.Write(sent.Bytes())
	}()
	err = fromServer(pipeConn{a}, 100, 3)
	a.Close()
	<-done
	if wrong, ok := err.(*WrongCountError); !ok || wrong.Want != 3 || wrong.Got != 2 || wrong.GotBytes != 200 {
		t.Errorf("%v", err)
	}
	for _, asked := range [][]byte{nil, ask(1, maxMessage+1)} {
		if err := send(w, asked); err == nil {
			t.Errorf("%x is answered", asked)
		}
	}
}

func TestRefused(t *testing.T) {
	if _, err := Execute(t.Context(), Config{Messages: 1}); err == nil || !strings.Contains(err.Error(),
		"nothing to measure") || !strings.Contains(err.Error(), "64 or more") || !strings.Contains(err.Error(),
		"1 or more") {
		t.Errorf("%v", err)
	}
	ctl, err := DialControl(t.Context(), server(t))
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	if err := ctl.Call("open", Spec{Plane: "smoke", Endpoints: 1}, nil); err == nil || !strings.Contains(err.Error(),
		"smoke") {
		t.Errorf("%v", err)
	}
	if err := ctl.Call("dance", nil, nil); err == nil || !strings.Contains(err.Error(), `"dance" is not known`) {
		t.Errorf("%v", err)
	}
	if err := ctl.Call("open", Spec{Plane: "tcp", Endpoints: 1}, nil); err != nil {
		t.Errorf("the connection is of no use after an error: %v", err)
	}
}

var _ io.ReadWriter = skipping{}
