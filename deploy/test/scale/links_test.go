package scale

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// TestIdleLinks gives the real frontend links to many worker nodes, which stream nothing, and reports what a link costs
// it. By default 128 nodes; LANEWAY_SCALE_LINKS=512 is the size of docs/scale.md.
func TestIdleLinks(t *testing.T) {
	count := 128
	if s := os.Getenv("LANEWAY_SCALE_LINKS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 4096 {
			t.Fatalf("LANEWAY_SCALE_LINKS=%s: use a number from 1 to 4096", s)
		}
		count = n
	}
	if err := cli.NeedFiles(3*count+500, fmt.Sprintf("%d nodes", count)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := lab.Build(t.Context(), lab.Root(), dir); err != nil {
		t.Fatal(err)
	}
	e, n := devtest.Etcd(t), devtest.NATS(t)
	port := lab.FreePort(t, 2)
	front := lab.Start(t, lab.Options{Name: "frontend"}, filepath.Join(dir, "frontend"), "--admin-addr=127.0.0.1:"+
		strconv.Itoa(port), "--http-addr=127.0.0.1:"+strconv.Itoa(port+1),
		"--namespace=links", "--etcd-endpoints="+strings.Join(e.Endpoints(), ","), "--nats-url="+n.URL(),
		"--response-plane=quic", "--log-level=error")
	lab.Eventually(t, time.Minute, "the frontend answers",
		func() error { _, err := lab.Get("http://" + front.Admin + "/livez"); return err })
	before := must(gauges(front))(t)

	registry, err := etcd.New(t.Context(), etcd.Config{Endpoints: e.Endpoints(), Namespace: "links"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { registry.Close() })
	var records []discovery.Worker
	for i := range count {
		records = append(records, discovery.Worker{Schema: discovery.Schema, ID: fmt.Sprintf("w-%d", i),
			Models: []string{"mock"}, Node: listen(t, i)})
	}
	began := time.Now()
	if _, err := registry.Register(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, 3*time.Minute, "every node has a link with a lane", func() error {
		g, err := gauges(front)
		if err != nil {
			return err
		}
		if g["laneway_links"] != float64(count) || g[`laneway_lanes{plane="quic",state="up"}`] != float64(count) {
			return fmt.Errorf("%v links, %v lanes", g["laneway_links"], g[`laneway_lanes{plane="quic",state="up"}`])
		}
		return nil
	})
	up := time.Since(began)
	after := must(gauges(front))(t)
	time.Sleep(calm)
	later := must(gauges(front))(t)
	each := func(name string) float64 { return (later[name] - before[name]) / float64(count) }
	report(t,
		"%d idle links up after %v; each takes %.0f KiB resident, %.1f goroutines, %.1f files; PINGs of all take "+
			"%.1f%% of a core",
		count, up.Round(time.Millisecond), each("process_resident_memory_bytes")/1024, each("go_goroutines"),
		each("process_open_fds"),
		100*(later["process_cpu_seconds_total"]-after["process_cpu_seconds_total"])/calm.Seconds())
	if later["laneway_links"] != float64(count) || later[`laneway_lane_deaths_total{reason="silent"}`] > 0 {
		t.Errorf("idle links died: %v are left, %v were silent", later["laneway_links"],
			later[`laneway_lane_deaths_total{reason="silent"}`])
	}
}

// listen makes one worker node of the plane.
func listen(t *testing.T, i int) discovery.Node {
	t.Helper()
	app := cli.New("node", "a node of the plane")
	app.Env = nil
	flags := planeflags.Register(app, planeflags.Options{})
	if err := app.Parse([]string{"--response-plane=quic", "--server-endpoints=1", "--bind-addr=127.0.0.1:0",
		"--advertise-addr=127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	transports, err := flags.Settings().Transports(id, log)
	if err != nil {
		t.Fatal(err)
	}
	cfg := flags.Settings().Worker(id, transports, log)
	cfg.Name = fmt.Sprintf("node-%d", i)
	w, err := responseplane.NewWorker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		for _, x := range transports {
			x.Close()
		}
	})
	if err := w.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.Descriptor()
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// gauges are the values of a /metrics page by the text before them.
func gauges(p *lab.Process) (map[string]float64, error) {
	text, err := lab.Get("http://" + p.Admin + "/metrics")
	if err != nil {
		return nil, err
	}
	out := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = v
		}
	}
	return out, nil
}
