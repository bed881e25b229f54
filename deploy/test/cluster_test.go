package deploytest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

// cluster is a small one of real processes.
type cluster struct {
	discovery  []string // flags
	frontend   *lab.Process
	workers    []*lab.Process
	firstPorts []int // of the workers' lanes
}

type clusterOptions struct {
	processes, workersEach int
	options                func(name string) lab.Options
	program                func(name string) string // where the binary is, as the process sees it
}

// startCluster starts etcd, NATS, workers with two endpoints each, and a frontend, and waits until the frontend reaches
// every worker.
func startCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	if o.options == nil {
		o.options = func(name string) lab.Options { return lab.Options{Name: name} }
	}
	if o.program == nil {
		o.program = bin
	}
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	c := &cluster{discovery: []string{"--etcd-endpoints=" + strings.Join(etcd.Endpoints(), ","), "--nats-url=" +
		nats.URL(), "--wait-for-discovery=30s"}}
	for i := range o.processes {
		name := fmt.Sprintf("worker-%d", i)
		lanes := lab.FreePort(t, 3)
		args := append([]string{"--name=" + name, "--admin-addr=127.0.0.1:" + strconv.Itoa(lanes+2),
			"--bind-addr=127.0.0.1:" + strconv.Itoa(lanes), "--advertise-addr=127.0.0.1",
			"--server-endpoints=2", "--num-workers=" + strconv.Itoa(o.workersEach), "--inter-token-latency=20ms",
			"--drain-grace=200ms"}, c.discovery...)
		c.workers = append(c.workers, lab.Start(t, o.options(name), o.program("mockworker"), args...))
		c.firstPorts = append(c.firstPorts, lanes)
	}
	ports := lab.FreePort(t, 2)
	args := append([]string{"--name=frontend", "--http-addr=127.0.0.1:" + strconv.Itoa(ports),
		"--admin-addr=127.0.0.1:" + strconv.Itoa(ports+1)}, c.discovery...)
	c.frontend = lab.Start(t, o.options("frontend"), o.program("frontend"), args...)
	for _, w := range c.workers {
		w.Ready(t, 60*time.Second)
	}
	c.frontend.Ready(t, 60*time.Second)
	lab.Eventually(t, 60*time.Second, "the frontend reaches every worker process", func() error {
		text, err := lab.Get("http://" + c.frontend.Admin + "/metrics")
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("laneway_links %d\n", o.processes); !strings.Contains(string(text), want) {
			return fmt.Errorf("not yet %q", want)
		}
		return nil
	})
	return c
}

// load runs the load generator and fails unless every response was right.
func (c *cluster) load(t *testing.T, requests int) {
	t.Helper()
	code, out, errs := lab.Run(t, nil, bin("loadgen"), "--url=http://"+c.frontend.HTTP, "--concurrency=16",
		"--request-count="+strconv.Itoa(requests),
		"--isl=16", "--osl=16", "--warmup-request-count=0", "--artifact-dir="+t.TempDir()+"/run", "--ui=none",
		"--audit=on")
	if code != 0 {
		t.Fatalf("loadgen: exit code %d\n%s%s", code, out, errs)
	}
}
