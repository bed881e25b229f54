package planeflags

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/transport"
)

// TestMetricsSayWhatIsInForce: a series for each setting, of the sockets that there are when it is scraped.
func TestMetricsSayWhatIsInForce(t *testing.T) {
	f, err := parse(t, "--quic-gro=off", "--tls-ca=a\xffb", "--tls-cert=b", "--tls-key=c", "--peer-name=d")
	if err != nil {
		t.Fatal(err)
	}
	var sockets []transport.SocketInfo
	inForce := func() []Setting { return f.Settings().InForce(sockets) }
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewCollector(inForce))
	expect := func(want ...Setting) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[Setting]bool{}
		for _, m := range families[0].GetMetric() {
			l := map[string]string{}
			for _, p := range m.GetLabel() {
				l[p.GetName()] = p.GetValue()
			}
			if m.GetGauge().GetValue() != 1 || len(l) != 3 {
				t.Errorf("%v", m)
			}
			got[Setting{l["setting"], l["asked"], l["in_force"]}] = true
		}
		for _, s := range append(inForce(), want...) {
			s.Asked, s.InForce = strings.ToValidUTF8(s.Asked, "\uFFFD"), strings.ToValidUTF8(s.InForce, "\uFFFD")
			if !got[s] {
				t.Errorf("%+v is not exported", s)
			}
		}
		if len(families) != 1 || families[0].GetName() != "laneway_setting_info" || len(got) != len(inForce()) {
			t.Errorf("%d families, %d series of %s for %d settings", len(families), len(got), families[0].GetName(), len(inForce()))
		}
	}
	expect(Setting{"quic-gro", "off", unknown})
	sockets = []transport.SocketInfo{{Plane: transport.PlaneQUIC, Role: transport.RoleLane, GSO: true, MaxMTU: 1452}}
	expect(Setting{"quic-gro", "off", "off"}, Setting{"quic-gso", "on", "on"}, Setting{"max-mtu", "0", "discovery up to 1452"}, Setting{"tls-ca", "a\uFFFDb", "a\uFFFDb"})
}
