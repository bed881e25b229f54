package planemetrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSettings: a series for each setting, as it is in force when it is scraped. A file's name need not be UTF-8, a
// label must.
func TestSettings(t *testing.T) {
	list := []planeflags.Setting{{Name: "quic-gro", Asked: "on", InForce: "unknown"}, {Name: "tls-ca", Asked: "a\xffb",
		InForce: "a\xffb"}, {Name: "advertise-addr"}}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(Settings(func() []planeflags.Setting { return list }))
	for range 2 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != 1 || families[0].GetName() != "laneway_setting_info" ||
			len(families[0].GetMetric()) != len(list) {
			t.Fatalf("%v", families)
		}
		got := map[planeflags.Setting]bool{}
		for _, m := range families[0].GetMetric() {
			l := map[string]string{}
			for _, p := range m.GetLabel() {
				l[p.GetName()] = p.GetValue()
			}
			if m.GetGauge().GetValue() != 1 || len(l) != 3 {
				t.Errorf("%v", m)
			}
			got[planeflags.Setting{Name: l["setting"], Asked: l["asked"], InForce: l["in_force"]}] = true
		}
		for _, s := range list {
			s.Asked, s.InForce = strings.ToValidUTF8(s.Asked, "\uFFFD"), strings.ToValidUTF8(s.InForce, "\uFFFD")
			if !got[s] {
				t.Errorf("%+v is not exported", s)
			}
		}
		list[0].InForce = "on 1 of 2 sockets" // seen at the next scrape
	}
}
