package analysis

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Config is what a run was made with, as far as it can change its numbers.
type Config struct {
	// Values hold the settings and the environment ("env." before the name), each as JSON.
	Values map[string]string
	// Name tells the configuration from the others that were loaded with it.
	Name string
}

// incidental are settings that differ between runs of one configuration: where things are and how they are shown. What
// is judged afterwards (thresholds) changes no number.
var incidental = []string{
	"advertise_addr", "artifact_dir", "bin_dir", "bind_addr",
	"client_fallback", // why client is what it is
	"etcd_endpoints", "goodput", "header",
	"holders", // on purpose; the holders that the rows show tell the runs apart
	"label", "log_format", "log_level", "max_error_rate", "metrics_url", "nats_url",
	"pin", // environment.pins says what came of it
	"random_seed", "run_info", "runs", "threshold", "ui", "url",
}

// loadKeys are the settings that change the load itself. Sides that differ in them measured different things.
var loadKeys = []string{
	"arrival_pattern", "concurrency", "concurrency_ramp_duration", "isl", "osl", "request_rate", "steady_after",
	"workers", "worker_processes",
}

func configOf(r *report.Run) Config {
	c := Config{Values: map[string]string{}}
	put := func(k string, v any) {
		b, err := json.Marshal(v)
		if err == nil && string(b) != "null" { // what came from JSON marshals
			c.Values[k] = string(b)
		}
	}
	for k, v := range r.Config {
		if !contains(incidental, k) {
			put(k, v)
		}
	}
	e := r.Environment
	put("env.revision", e.Revision)
	put("env.go", e.Go)
	put("env.kernel", e.Kernel)
	put("env.cpus", e.CPUs)
	put("env.cpu_quota", e.CPUQuota)
	put("env.pins", e.Pins)
	put("env.rmem_max", e.RmemMax)
	put("env.wmem_max", e.WmemMax)
	put("env.mtu", e.MTU)
	put("env.tcp_congestion_control", e.TCPCongestionControl)
	return c
}

// key is the same for two runs of one configuration.
func (c Config) key() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.Values)) {
		fmt.Fprintf(&b, "%s=%s\n", k, c.Values[k])
	}
	return b.String()
}

// value is a setting as it is shown.
func (c Config) value(k string) string {
	v, ok := c.Values[k]
	if !ok {
		return "not said"
	}
	var s string
	if json.Unmarshal([]byte(v), &s) == nil {
		if s == "" {
			return "(empty)"
		}
		return s
	}
	return v
}

func (c Config) plane() string {
	if _, ok := c.Values["response_plane"]; !ok {
		return "no plane named"
	}
	return c.value("response_plane")
}

// differing lists the keys in which not all of the configurations agree.
func differing(all []Config) []string {
	keys := map[string]bool{}
	for _, c := range all {
		for k := range c.Values {
			keys[k] = true
		}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		for _, c := range all[1:] {
			if c.Values[k] != all[0].Values[k] {
				out = append(out, k)
				break
			}
		}
	}
	return out
}

// mostNamed is how many differing settings a name holds; the rest are listed below the table.
const mostNamed = 3

// nameAll names the configurations by their plane, and by what tells them from others of the same plane.
func nameAll(runs []*Run) {
	byPlane := map[string][]*Run{}
	for _, r := range runs {
		if r.Report != nil {
			byPlane[r.Config.plane()] = append(byPlane[r.Config.plane()], r)
		}
	}
	for plane, of := range byPlane {
		configs := map[string]Config{}
		for _, r := range of {
			configs[r.Config.key()] = r.Config
		}
		diff := differing(slices.Collect(maps.Values(configs)))
		names := map[string]string{} // name -> key
		for _, key := range slices.Sorted(maps.Keys(configs)) {
			c := configs[key]
			name := plane
			for i, k := range diff {
				if i == mostNamed {
					break
				}
				name += fmt.Sprintf(", %s %s", strings.TrimPrefix(k, "env."), c.value(k))
			}
			for n, base := 2, name; names[name] != ""; n++ {
				name = fmt.Sprintf("%s (%d)", base, n)
			}
			names[name] = key
		}
		for _, r := range of {
			for name, key := range names {
				if key == r.Config.key() {
					r.Config.Name = name
				}
			}
		}
	}
}
