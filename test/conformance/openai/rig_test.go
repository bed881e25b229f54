// Package openai runs the official Go and Node clients of the OpenAI API against the real programs: a frontend, workers
// that fail in each way there is, etcd and NATS.
package openai

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/test/conformance/internal/programs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// rig is a cluster with a worker for each way in which a request can go.
type rig struct {
	url, admin string // of the frontend
	empty      string // of a frontend that has no worker
	// of a frontend that soon says that a stream waits for its first token; it reaches a worker that takes long
	patient string
	workers map[string]string
}

// The models of the rig's workers: what becomes of a request.
const (
	fine     = "fine"
	refuse   = "refuse"
	fails    = "fail"
	stall    = "stall"
	truncate = "truncate"
	lane     = "lane"
	slow     = "slow" // comes to its first token after many of the patient frontend's keep-alives
	// Each of these workers dies of its first request.
	killEarly = "kill-early"
	killLate  = "kill-late"
)

func newRig(t *testing.T, kills ...string) *rig {
	t.Helper()
	pr, err := programs.Build()
	if err != nil {
		t.Fatal(err)
	}
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	common := func(name string, more ...string) []string {
		return append([]string{"--name=" + name, "--admin-addr=127.0.0.1:0", "--etcd-endpoints=" +
			strings.Join(etcd.Endpoints(), ","), "--nats-url=" + nats.URL()}, more...)
	}
	r := &rig{workers: make(map[string]string)}
	started := make(map[string]*programs.Process)
	for _, model := range append([]string{fine, refuse, fails, stall, truncate, lane, slow}, kills...) {
		args := common(model, "--model="+model, "--num-workers=1", "--bind-addr=127.0.0.1:0", "--server-endpoints=1",
			"--drain-grace=0", "--drain-timeout=1s",
			"--time-to-first-token=5ms", "--inter-token-latency=5ms")
		switch model {
		case fine:
		case slow:
			args = append(args, "--time-to-first-token=1500ms")
		default:
			how, _, _ := strings.Cut(model, "-")
			args = append(args, "--failure-injection-rate=1", "--failure-types="+how)
		}
		started[model] = programs.Start(t, model, pr.Worker, args...)
	}
	for model, p := range started {
		r.workers[model] = p.Says(t, "ready", "admin")
	}
	flags := []string{"--http-addr=127.0.0.1:0", "--first-token-timeout=2s", "--inactivity-timeout=2s",
		"--retry-limit=0", "--max-body-bytes=1MiB"}
	front := programs.Start(t, "frontend", pr.Frontend, common("frontend", flags...)...)
	patient := programs.Start(t, "patient frontend", pr.Frontend,
		common("patient", append(flags, "--sse-keepalive=200ms")...)...)
	lone := programs.Start(t, "lone frontend", pr.Frontend, common("lone", "--http-addr=127.0.0.1:0",
		"--namespace=empty")...)
	r.url, r.admin, r.empty = front.Says(t, "serving", "http"), front.Says(t, "serving", "admin"),
		lone.Says(t, "serving", "http")
	r.patient = patient.Says(t, "serving", "http")
	want := fmt.Sprintf(`"reachable": %d`, len(started))
	for _, admin := range []string{r.admin, patient.Says(t, "serving", "admin")} {
		eventually(t, "frontend that reaches all workers",
			func() bool { return strings.Contains(programs.Get(t, admin+"/debug/plane"), want) })
	}
	return r
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}
