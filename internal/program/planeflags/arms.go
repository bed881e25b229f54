package planeflags

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/transport"
)

// ArmNames are the reference arms that a run can have beside the planes.
func ArmNames() []string {
	var names []string
	for _, a := range refplane.Arms() {
		names = append(names, a.Name)
	}
	return names
}

// Carrier is the transport's plane that carries a plane or a reference arm.
func Carrier(plane string) string {
	if a, ok := refplane.ArmNamed(plane); ok {
		return a.Plane
	}
	return plane
}

// Carriers are those of several, each once.
func Carriers(planes []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range planes {
		if c := Carrier(p); !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}

// Arm is the reference arm that --response-plane asks for, false when it names planes.
func (s Settings) Arm() (refplane.Arm, bool) {
	if len(s.Planes) != 1 {
		return refplane.Arm{}, false
	}
	return refplane.ArmNamed(s.Planes[0])
}

// Reference is the configuration of one side of the arm. It has one transport, the caller's.
func (s Settings) Reference(a refplane.Arm, id *transport.Identity, t transport.Transport, name string,
	log *slog.Logger) refplane.Config {
	return refplane.Config{
		Mode: a.Mode, Interval: a.Interval, Transport: t, Identity: id, Name: name, Plane: a.Name, BindAddr: s.BindAddr,
		AdvertiseAddr: s.AdvertiseAddr, Logger: log,
	}
}

// checkArms looks at reference arms: each is a plane of its own, so a program takes one alone, and only a program that
// runs one after the other several.
func checkArms(planes []string) error {
	for _, p := range planes {
		if _, ok := refplane.ArmNamed(p); ok && len(planes) > 1 {
			return fmt.Errorf("--%s %s: %s is a reference arm, which shares no link with a plane: name it alone",
				planeFlag, strings.Join(planes, ","), p)
		}
	}
	return nil
}

// unusedByArms are the settings of what reference arms do not have.
var unusedByArms = map[string]bool{
	"lanes": true, "tcp-lanes": true, "quic-lanes": true, "server-endpoints": true, "keep-alive-interval": true,
	"idle-timeout": true, "active-ping-interval": true,
	"resume-timeout": true, "lane-log": true, "max-replay-bytes": true, "stream-window": true, "batch-gap-max": true,
	"urgent": true, "shrink-threshold": true, "dial": true,
}

// markUnused says of settings that an arm does not have that they are not in force.
func markUnused(arm string, list []Setting) {
	for i := range list {
		if unusedByArms[list[i].Name] {
			list[i].InForce = "not used by " + arm
		}
	}
}
