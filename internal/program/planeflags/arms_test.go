package planeflags

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

func TestArms(t *testing.T) {
	parse := func(how Arms, args ...string) (Settings, string) {
		app := cli.New("x", "")
		var stderr strings.Builder
		app.Env, app.Stderr = nil, &stderr
		f := Register(app, Options{Arms: how})
		var s Settings
		app.Run(args, func(context.Context, *slog.Logger) error { s = f.Settings(); return nil })
		return s, stderr.String()
	}
	if _, text := parse(NoArms, "--response-plane=mux-tcp"); !strings.Contains(text, `"mux-tcp" is not known`) {
		t.Errorf("%q", text)
	}
	if _, text := parse(ArmAlone, "--response-plane=tcp,mux-tcp"); !strings.Contains(text,
		"mux-tcp is a reference arm, which shares no link with a plane: name it alone") {
		t.Errorf("%q", text)
	}
	if s, text := parse(ArmsAmong, "--response-plane=tcp,mux-tcp,record-quic"); text != "" ||
		len(Carriers(s.Planes)) != 2 {
		t.Errorf("%q %v", text, s.Planes)
	}
	s, text := parse(ArmAlone, "--response-plane=interval-quic", "--lanes=3")
	a, ok := s.Arm()
	if text != "" || !ok || a.Interval == 0 {
		t.Fatalf("%q, arm %+v", text, a)
	}
	for _, set := range s.InForce(nil) {
		if set.Name == "lanes" && (set.Asked != "3" || set.InForce != "not used by interval-quic") ||
			set.Name == "max-mtu" && strings.Contains(set.InForce, "not used") {
			t.Errorf("%+v", set)
		}
	}
	for name := range unusedByArms { // a flag that was renamed would be reported as in force
		if _, ok := func() (Setting, bool) {
			for _, set := range s.InForce(nil) {
				if set.Name == name {
					return set, true
				}
			}
			return Setting{}, false
		}(); !ok && name != "tcp-lanes" && name != "quic-lanes" {
			t.Errorf("no setting is called %s", name)
		}
	}
}
