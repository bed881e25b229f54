package settings

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
	"github.com/laneway-ai/laneway/internal/lab/planebench"
	"github.com/laneway-ai/laneway/internal/lab/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPlanes: a setting is run on the planes that are asked for and that it has an effect on.
func TestPlanes(t *testing.T) {
	r := &runner{Config: Config{Planes: []string{"tcp", "quic"}}}
	for _, c := range []struct {
		settings []Setting
		want     []string
	}{
		{[]Setting{{Name: "a"}}, []string{"tcp", "quic"}},
		{[]Setting{{Name: "a", Planes: quicOnly}}, []string{"quic"}},
		{[]Setting{{Name: "a", Planes: quicOnly}, {Name: "b", Planes: tcpOnly}}, []string{"tcp", "quic"}},
	} {
		if got := r.planes(c.settings...); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, expected %v", c.settings, got, c.want)
		}
	}
	r.Planes = tcpOnly
	if got := r.planes(Setting{Planes: quicOnly}); len(got) != 0 {
		t.Errorf("%v of a setting of quic on tcp", got)
	}
}

// TestRatios: each plane against its own default, the bare plane of a fixed gap instead of ours, and no ratio of a
// marked run.
func TestRatios(t *testing.T) {
	run := func(plane, baseline string, front, worker, delay float64, marks ...string) *planebench.Run {
		return &planebench.Run{Plane: plane, Baseline: baseline, Frontend: planebench.Side{CPUMS: front},
			Worker: planebench.Side{CPUMS: worker}, TotalMS: front + worker,
			Delay: &report.Dist{P99: delay}, Marks: marks}
	}
	base := byPlane(&planebench.Report{Runs: []*planebench.Run{run("tcp", "", 2, 4, 1), run("quic", "", 4, 4, 1)}}, "")
	one := byPlane(&planebench.Report{Runs: []*planebench.Run{run("tcp", "", 100, 100, 100),
		run("tcp", "batched", 1, 2, 3), run("quic", "batched", 4, 8, 1, "machine-limited")}}, "batched")
	tcp, quic := ratio("gap", "tcp", 1, one["tcp"], base["tcp"]), ratio("gap", "quic", 1, one["quic"], base["quic"])
	if tcp.Frontend != 0.5 || tcp.Worker != 0.5 || tcp.Total != 0.5 || tcp.Delay != 2 || len(tcp.Marks) != 0 ||
		quic.Total != 1.5 || len(quic.Marks) != 1 {
		t.Errorf("%+v, %+v", tcp, quic)
	}
	var out strings.Builder
	if err := benchtable.Print(&out, Shown([]Setting{{Name: "gap"}, {Name: "other"}}, []string{"tcp", "quic"},
		[]Pair{tcp, tcp, quic}, []Left{{"other", "no reason"}})); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"gap tcp 2 0 0.50 [0.50-0.50]", "+2.00 [+2.00 to +2.00]", "gap quic 0 1 - - -",
		"Left out: other: no reason"} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	names := slices.Sorted(slices.Values(Names()))
	if len(slices.Compact(slices.Clone(names))) != len(names) || slices.Contains(names, defaults) {
		t.Errorf("%v", names)
	}
}
