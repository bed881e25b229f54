package streambench

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/transportbench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryCellIsMeasured runs a small table over real links; each item of each stream is checked where it arrives.
func TestEveryCellIsMeasured(t *testing.T) {
	s, err := transportbench.StartServer(t.Context(), "127.0.0.1:0", nil,
		func(host string) transportbench.Handler { return NewHandler(host, slog.New(slog.DiscardHandler)) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, err := Execute(t.Context(), Config{Connect: s.Addr(), Planes: []string{"tcp", "quic"}, Lanes: []int{1, 4},
		Streams: []int{3, 16}, Items: 600, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for _, tab := range r.Tables {
		for _, row := range tab.Rows {
			for _, col := range tab.Columns {
				v := tab.Cells[transportbench.Key(row, col)]
				if len(v) != 1 || v[0].Number <= 0 {
					t.Fatalf("%s: %s is %v", tab.Title, transportbench.Key(row, col), v)
				}
				busiest, err := strconv.ParseFloat(v[0].Note, 64)
				if err != nil || busiest < 0.99 || busiest > 4 {
					t.Errorf("%s: %s: the busiest lane has %q of the mean", tab.Title, transportbench.Key(row, col),
						v[0].Note)
				}
				if col == "16 streams" && strings.HasSuffix(row, "4 lanes") && busiest > 2 {
					t.Errorf("16 streams are spread unevenly over 4 lanes: %v", busiest)
				}
				cells++
			}
		}
	}
	if cells != 2*4*2 {
		t.Errorf("%d cells", cells)
	}
}

func TestRefused(t *testing.T) {
	_, err := Execute(t.Context(), Config{Planes: []string{"tcp"}, Lanes: []int{17}, Streams: []int{5}, Items: 4})
	for _, want := range []string{"17 lanes: use 1 to 16", "5 streams of 4 items", "0 repetitions"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
