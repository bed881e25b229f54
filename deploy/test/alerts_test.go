package deploytest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"sigs.k8s.io/yaml"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	"github.com/laneway-ai/laneway/deploy/test/internal/promlab"
)

const (
	// step is between two samples and two evaluations, milliseconds; the feeds below are written for 30 s.
	step = 30_000
	// steps is how long a feed lasts: 30 minutes.
	steps = 60
)

// healthy is a frontend with 8 worker processes at its work: 160 requests a second, nothing wrong. A feed replaces
// series of the same name and labels, and adds others.
var healthy = []string{
	`up{job="laneway-frontend",instance="f"} 1x60`,
	`up{job="laneway-worker",instance="w"} 1x60`,
	`laneway_links{job="laneway-frontend",instance="f"} 8x60`,
	`laneway_lanes{job="laneway-frontend",instance="f",plane="quic",state="up"} 8x60`,
	`laneway_lanes{job="laneway-frontend",instance="f",plane="tls",state="up"} 0x60`,
	`laneway_frontend_requests_total{job="laneway-frontend",instance="f",model="mock",endpoint="chat",request_type="stream",status="200",error_type=""} 0+4800x60`,
	`laneway_frontend_requests_total{job="laneway-frontend",instance="f",model="mock",endpoint="chat",request_type="stream",status="499",error_type="cancelled"} 0+300x60`,
	`laneway_frontend_retries_total{job="laneway-frontend",instance="f",reason="busy"} 0+10x60`,
	`laneway_frontend_slow_clients_total{job="laneway-frontend",instance="f"} 0x60`,
	`laneway_frontend_time_to_first_token_seconds_bucket{job="laneway-frontend",instance="f",model="mock",le="0.5"} 0+4790x60`,
	`laneway_frontend_time_to_first_token_seconds_bucket{job="laneway-frontend",instance="f",model="mock",le="10"} 0+4800x60`,
	`laneway_frontend_time_to_first_token_seconds_bucket{job="laneway-frontend",instance="f",model="mock",le="+Inf"} 0+4800x60`,
	`process_open_fds{job="laneway-frontend",instance="f"} 8300x60`,
	`process_max_fds{job="laneway-frontend",instance="f"} 65536x60`,
	`laneway_udp_socket_drops_total{job="laneway-frontend",instance="f",port="4000"} 0x60`,
	`laneway_quic_library_drops_total{job="laneway-frontend",instance="f"} 0x60`,
	`laneway_udp_buffer_bytes{job="laneway-frontend",instance="f",port="4000",direction="receive",kind="asked"} 8388608x60`,
	`laneway_udp_buffer_bytes{job="laneway-frontend",instance="f",port="4000",direction="receive",kind="granted"} 16777216x60`,
	`laneway_lane_deaths_total{job="laneway-frontend",instance="f",reason="silent"} 0x60`,
	`laneway_lane_deaths_total{job="laneway-frontend",instance="f",reason="peer"} 0+1x60`, // workers come and go
	`laneway_transport_dial_errors_total{job="laneway-frontend",instance="f",plane="quic"} 0x60`,
	`laneway_sink_slow_calls_total{job="laneway-frontend",instance="f"} 0x60`,
	`laneway_window_stalls_total{job="laneway-worker",instance="w"} 0x60`,
	`laneway_worker_waiting_requests{job="laneway-worker",instance="w"} 0x60`,
	`laneway_worker_pass_late_seconds_bucket{job="laneway-worker",instance="w",le="0.001"} 0+9600x60`,
	`laneway_worker_pass_late_seconds_bucket{job="laneway-worker",instance="w",le="0.5"} 0+9600x60`,
	`laneway_worker_pass_late_seconds_bucket{job="laneway-worker",instance="w",le="+Inf"} 0+9600x60`,
	`laneway_refused_terms_total{job="laneway-worker",instance="w"} 0x60`,
}

const request = `laneway_frontend_requests_total{job="laneway-frontend",instance="f",model="mock",endpoint="chat",request_type="stream",`

// conditions are, for each alert, what makes it fire.
var conditions = map[string][]string{
	"LanewayTargetDown": {`up{job="laneway-worker",instance="w"} 1x50 0x9`},
	"LanewayNoWorkers": {`laneway_links{job="laneway-frontend",instance="f"} 8x50 0x9`,
		`laneway_lanes{job="laneway-frontend",instance="f",plane="quic",state="up"} 8x50 0x9`},
	"LanewayErrors":           {request + `status="504",error_type="timeout"} 0+100x60`},
	"LanewayOverload":         {request + `status="429",error_type="overload"} 0+30x60`},
	"LanewayLostResponses":    {request + `status="502",error_type="lost"} _x50 1x9`}, // it appears with the first loss
	"LanewayProtocolErrors":   {request + `status="502",error_type="protocol"} 0x50 1x9`},
	"LanewayRetries":          {`laneway_frontend_retries_total{job="laneway-frontend",instance="f",reason="busy"} 0+500x60`},
	"LanewayFirstTokenSlow":   {`laneway_frontend_time_to_first_token_seconds_bucket{job="laneway-frontend",instance="f",model="mock",le="0.5"} 0+4000x60`},
	"LanewaySlowClients":      {`laneway_frontend_slow_clients_total{job="laneway-frontend",instance="f"} 0+2x60`},
	"LanewayFilesNearLimit":   {`process_open_fds{job="laneway-frontend",instance="f"} 60000x60`},
	"LanewayUDPDrops":         {`laneway_quic_library_drops_total{job="laneway-frontend",instance="f"} 0+90x60`},
	"LanewayUDPBufferClamped": {`laneway_udp_buffer_bytes{job="laneway-frontend",instance="f",port="4000",direction="receive",kind="granted"} 425984x60`},
	"LanewayPlaneFallback":    {`laneway_plane_fallbacks_total{job="laneway-frontend",instance="f",from="quic",to="tls",reason="timeout"} _x55 1x4`},
	"LanewayLinkWithoutLane":  {`laneway_lanes{job="laneway-frontend",instance="f",plane="quic",state="up"} 8x50 7x9`},
	"LanewayLaneDeaths":       {`laneway_lane_deaths_total{job="laneway-frontend",instance="f",reason="silent"} 0+1x60`},
	"LanewayDialErrors":       {`laneway_transport_dial_errors_total{job="laneway-frontend",instance="f",plane="quic"} 0+10x60`},
	"LanewayWindowStalls":     {`laneway_window_stalls_total{job="laneway-worker",instance="w"} 0+600x60`},
	"LanewaySlowSink":         {`laneway_sink_slow_calls_total{job="laneway-frontend",instance="f"} 0+90x60`},
	"LanewayWorkerQueue":      {`laneway_worker_waiting_requests{job="laneway-worker",instance="w"} 12x60`},
	"LanewayWorkerLate":       {`laneway_worker_pass_late_seconds_bucket{job="laneway-worker",instance="w",le="0.001"} 0+1000x60`},
	"LanewayTermsRefused":     {`laneway_refused_terms_total{job="laneway-worker",instance="w"} 0x50 1x9`},
}

// feed plays series into a store, evaluates the rules at every step as a server would, and returns what fired at each.
func feed(t *testing.T, lines []string) [][]promlab.Alert {
	t.Helper()
	store := promlab.NewStore()
	engine := promlab.NewEngine(store)
	defer engine.Close()
	rules, err := promlab.LoadRules(engine, lab.Deploy("prometheus", "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	type sequence struct {
		labels labels.Labels
		values []float64
		there  []bool
	}
	series := make(map[string]sequence)
	for _, line := range lines {
		l, values, err := promlab.NewParser().ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := sequence{labels: l}
		for _, v := range values {
			s.values, s.there = append(s.values, v.Value), append(s.there, !v.Omitted)
		}
		series[l.String()] = s // later lines replace earlier ones
	}
	var out [][]promlab.Alert
	for i := range steps {
		now := int64(1_000_000_000 + i*step)
		for _, s := range series {
			if i < len(s.values) && s.there[i] {
				store.Append(s.labels, now, s.values[i])
			}
		}
		firing, err := rules.Eval(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, firing)
	}
	return out
}

func names(alerts []promlab.Alert) []string {
	var out []string
	for _, a := range alerts {
		out = append(out, a.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestNoAlertWhenAllIsWell(t *testing.T) {
	for i, firing := range feed(t, healthy) {
		if len(firing) > 0 {
			t.Fatalf("step %d: %v", i, firing)
		}
	}
}

func TestEveryAlertFires(t *testing.T) {
	engine := promlab.NewEngine(promlab.NewStore())
	defer engine.Close()
	rules, err := promlab.LoadRules(engine, lab.Deploy("prometheus", "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile(lab.Root() + "/docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, r := range rules.All() {
		if r.Alert == "" {
			continue
		}
		alerts++
		if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) ||
			r.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, r.Labels["severity"], r.Annotations["summary"])
		}
		if !strings.Contains(string(manual), "`"+r.Alert+"`") {
			t.Errorf("docs/operating.md does not say what %s means", r.Alert)
		}
		condition, ok := conditions[r.Alert]
		if !ok {
			t.Errorf("%s: no condition is tested", r.Alert)
			continue
		}
		t.Run(r.Alert, func(t *testing.T) {
			t.Parallel()
			rounds := feed(t, append(slices.Clone(healthy), condition...))
			if last := names(rounds[len(rounds)-1]); !slices.Contains(last, r.Alert) {
				t.Errorf("it does not fire: %v", last)
			} else if len(last) > 1 {
				t.Errorf("others fire with it: %v", last)
			}
			if r.For > 0 && slices.Contains(names(rounds[0]), r.Alert) {
				t.Error("it fires at once, before its time")
			}
		})
	}
	if alerts != len(conditions) {
		t.Errorf("%d alerts, %d conditions", alerts, len(conditions))
	}
}

// TestPrometheusRule holds the rules of the Prometheus operator equal to those of a plain server; -update writes them
// anew.
func TestPrometheusRule(t *testing.T) {
	b, err := os.ReadFile(lab.Deploy("prometheus", "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, groups, ok := strings.Cut(string(b), "\ngroups:\n")
	if !ok {
		t.Fatal("rules.yml has no groups")
	}
	var want strings.Builder
	want.WriteString("# The groups of deploy/prometheus/rules.yml for the Prometheus operator; the test in " +
		"deploy/test holds the two equal and writes this file\n" +
		"# anew with -update.\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: " +
		"laneway\nspec:\n  groups:\n")
	for line := range strings.Lines(groups) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		want.WriteString(line)
	}
	file := lab.Deploy("kubernetes", "components", "monitoring", "rules.yaml")
	if *update {
		if err := os.WriteFile(file, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want.String() {
		t.Error("components/monitoring/rules.yaml is not what rules.yml says: run this test with -update")
	}
	var parsed struct {
		Spec struct{ Groups []any }
	}
	if err := yaml.Unmarshal(have, &parsed); err != nil || len(parsed.Spec.Groups) < 4 {
		t.Errorf("%d groups: %v", len(parsed.Spec.Groups), err)
	}
}
