package deploytest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	"github.com/laneway-ai/laneway/deploy/test/internal/promlab"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/responseplane/promplane"
)

// dashboard is what of Grafana's format matters here.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		Type, Title, Description string
		Targets                  []struct{ Expr, RefID string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(lab.Deploy("grafana", "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	out := make(map[string]dashboard)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if d.UID+".json" != filepath.Base(f) {
			t.Errorf("%s has the uid %s", f, d.UID)
		}
		out[filepath.Base(f)] = d
	}
	return out
}

// filled is an expression with Grafana's variables as they are by default: everything, and a minute for rates.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$model", ".*").Replace(expr)
}

// metricNames are the names of the series that an expression asks for.
func metricNames(t *testing.T, expr string) []string {
	t.Helper()
	e, err := promlab.NewParser().ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	var out []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			out = append(out, v.Name)
		}
		return nil
	})
	return out
}

// described are the names that the plane's collector exports once they have happened, such as fallbacks.
func described() map[string]bool {
	c := promplane.New(func() responseplane.Stats { return responseplane.Stats{} })
	ch := make(chan *prometheus.Desc)
	go func() { c.Describe(ch); close(ch) }() // ends with the loop below
	out := make(map[string]bool)
	for d := range ch {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		out[name] = true
	}
	return out
}

// TestMetricsExist runs a small cluster under load, scrapes every process as Prometheus would, and asks what the
// dashboards and the rules ask: a panel without data, and a name that no program exports, fail.
func TestMetricsExist(t *testing.T) {
	c := startCluster(t, clusterOptions{processes: 2, workersEach: 4})
	store := promlab.NewStore()
	engine := promlab.NewEngine(store)
	defer engine.Close()
	rules, err := promlab.LoadRules(engine, lab.Deploy("prometheus", "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	exported := described()
	now := time.Now().UnixMilli()
	var firing []promlab.Alert
	scrape := func() {
		for job, procs := range map[string][]*lab.Process{"laneway-frontend": {c.frontend},
			"laneway-worker": c.workers} {
			for _, p := range procs {
				text, err := lab.Get("http://" + p.Admin + "/metrics")
				if err != nil {
					t.Fatal(err)
				}
				names, err := store.Scrape(text, now, job, p.Admin)
				if err != nil {
					t.Fatal(err)
				}
				maps.Copy(exported, names)
			}
		}
		if firing, err = rules.Eval(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		now += 15_000 // the clock of the samples; that of the cluster does not matter to rates that are not 0
	}
	scrape()
	for range 3 {
		c.load(t, 64)
		scrape()
	}
	// Round trips of the lanes are known after the first PING.
	lab.Eventually(t, 30*time.Second, "a lane has a round trip", func() error {
		scrape()
		v, err := engine.Query(t.Context(), "laneway_lane_rtt_seconds", now-15_000)
		if err == nil && len(v) == 0 {
			time.Sleep(time.Second)
			return os.ErrNotExist
		}
		return err
	})
	c.load(t, 64)
	scrape()
	at := now - 15_000

	for file, d := range dashboards(t) {
		panels := 0
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			panels++
			if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q: description %q, %d queries", file, p.Title, p.Description, len(p.Targets))
			}
			for _, q := range p.Targets {
				expr := filled(q.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s: %s: a variable is not known here: %s", file, p.Title, expr)
					continue
				}
				for _, name := range metricNames(t, expr) {
					if !exported[name] {
						t.Errorf("%s: %s: no program exports %s", file, p.Title, name)
					}
				}
				v, err := engine.Query(t.Context(), expr, at)
				if err != nil {
					t.Errorf("%s: %s: %v", file, p.Title, err)
				} else if !promlab.Numbers(v) {
					t.Errorf("%s: %s: no data for %s: %v", file, p.Title, expr, v)
				}
			}
		}
		if panels < 10 {
			t.Errorf("%s has %d panels", file, panels)
		}
		for _, v := range d.Templating.List {
			q, ok := v.Query.(map[string]any)
			if v.Type != "query" {
				continue
			}
			text, _ := q["query"].(string)
			metric, label, found := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "label_values("), ")"),
				", ")
			if !ok || !found {
				t.Errorf("%s: variable %s: query %v", file, v.Name, v.Query)
				continue
			}
			values, err := engine.Query(t.Context(), "count by ("+label+") ("+metric+")", at)
			if err != nil || len(values) == 0 || values[0].Metric.Get(label) == "" {
				t.Errorf("%s: variable %s has no values: %v %v", file, v.Name, values, err)
			}
		}
	}

	recorded := make(map[string]bool)
	for _, r := range rules.All() {
		if r.Record != "" {
			recorded[r.Record] = true
		}
		for _, name := range metricNames(t, r.Expr) {
			if !exported[name] && !recorded[name] && name != "up" {
				t.Errorf("rule %s%s: no program exports %s", r.Record, r.Alert, name)
			}
		}
	}
	// A cluster that is well raises no alarm; this machine's own limits may.
	for _, a := range names(firing) {
		if !slices.Contains([]string{"LanewayUDPBufferClamped", "LanewayWorkerLate", "LanewayWorkerQueue"}, a) {
			t.Errorf("%s fires in a cluster that is well: %v", a, firing)
		}
	}
}
