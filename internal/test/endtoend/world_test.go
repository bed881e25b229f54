//go:build linux

package endtoend

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

// world is an etcd, a NATS and what the test starts between them.
type world struct {
	etcd, nats *devserver.Server
	client     *http.Client
}

func newWorld(t *testing.T) *world {
	w := &world{etcd: devtest.Etcd(t), nats: devtest.NATS(t),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func (w *world) args(name string, more []string) []string {
	return append([]string{"--name=" + name, "--admin-addr=127.0.0.1:0", "--response-plane=tcp",
		"--etcd-endpoints=" + strings.Join(w.etcd.Endpoints(), ","), "--nats-url=" + w.nats.URL()}, more...)
}

// worker is a worker process.
type worker struct {
	*process
	w     *world
	admin string
}

// startWorker starts a worker process of n workers and does not wait for it. Flags in more override the test's.
func (w *world) startWorker(t *testing.T, name string, n int, more ...string) *worker {
	t.Helper()
	pr, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--num-workers=" + strconv.Itoa(n), "--bind-addr=127.0.0.1:0", "--server-endpoints=1",
		"--lease-ttl=2s", "--drain-grace=500ms",
		"--inter-token-latency=50ms", "--time-to-first-token=10ms"}, more...)
	return &worker{process: start(t, name, pr.Worker, w.args(name, args)...), w: w}
}

// ready waits until the worker process is registered.
func (k *worker) ready(t *testing.T) *worker {
	t.Helper()
	k.admin = "http://" + field(k.says(t, "msg=ready"), "admin")
	return k
}

// frontend is a frontend process.
type frontend struct {
	*process
	w           *world
	http, admin string
}

func (w *world) startFrontend(t *testing.T, more ...string) *frontend {
	t.Helper()
	pr, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--http-addr=127.0.0.1:0", "--first-token-timeout=10s", "--inactivity-timeout=20s"},
		more...)
	return &frontend{process: start(t, "frontend", pr.Frontend, w.args("frontend", args)...), w: w}
}

func (f *frontend) serving(t *testing.T) *frontend {
	t.Helper()
	line := f.says(t, "msg=serving")
	f.http, f.admin = "http://"+field(line, "http"), "http://"+field(line, "admin")
	return f
}

func (w *world) get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	resp, err := w.client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// view is what the tests need of a frontend's /debug/plane.
type view struct {
	Open    int `json:"open_requests"`
	Workers struct{ Known, Reachable, Vanished int }
	List    []struct {
		ID                           string
		Name                         string
		Reachable, Avoided, Vanished bool
		Open                         int
	} `json:"worker_list"`
	Stats struct{ OpenStreams, ClosingSlots, CommittedBytes, BufferedBytes int64 }
}

func (f *frontend) view(t *testing.T) (v view) {
	t.Helper()
	_, b := f.w.get(t, f.admin+"/debug/plane")
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// sees waits until the frontend knows and reaches exactly n workers, all from the registry.
func (f *frontend) sees(t *testing.T, n int) time.Duration {
	t.Helper()
	return eventually(t, fmt.Sprintf("%d workers", n), func() bool {
		v := f.view(t)
		return v.Workers.Known == n && v.Workers.Reachable == n && v.Workers.Vanished == 0
	})
}

// quiet waits until the frontend holds nothing of any request.
func (f *frontend) quiet(t *testing.T) {
	t.Helper()
	took := eventually(t, "quiet frontend", func() bool {
		v := f.view(t)
		for _, k := range v.List {
			if k.Open != 0 {
				return false
			}
		}
		return v.Open == 0 && v.Stats.OpenStreams == 0 && v.Stats.ClosingSlots == 0 && v.Stats.CommittedBytes == 0 &&
			v.Stats.BufferedBytes == 0
	})
	t.Logf("nothing pending at the frontend after %v", took)
}

// quiet waits until the worker process holds nothing of any request.
func (k *worker) quiet(t *testing.T) {
	t.Helper()
	took := eventually(t, "quiet "+k.name, func() bool {
		m := k.w.metrics(t, k.admin)
		return m["laneway_worker_running_requests"] == 0 && m["laneway_worker_waiting_requests"] == 0 &&
			m["laneway_open_streams"] == 0 && m["laneway_lane_log_bytes"] == 0 && m["laneway_committed_bytes"] == 0
	})
	t.Logf("nothing pending at %s after %v", k.name, took)
}

// metrics are a process's, by name with labels.
func (w *world) metrics(t *testing.T, admin string) map[string]float64 {
	t.Helper()
	_, b := w.get(t, admin+"/metrics")
	out := make(map[string]float64)
	for line := range strings.Lines(string(b)) {
		name, value, ok := cutLast(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && name[0] != '#' {
			out[name] = v
		}
	}
	return out
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// putter writes keys into etcd past the registry.
func (w *world) putter(t *testing.T) func(key, value string) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: w.etcd.Endpoints(), DialTimeout: patience, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func(key, value string) {
		if _, err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}
