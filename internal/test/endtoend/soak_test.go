//go:build linux

package endtoend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// soakFor is how long the mixed traffic goes on; LANEWAY_SOAK=5m makes it longer, and checks what needs a quiet minute
// afterwards.
func soakFor(t *testing.T) (d time.Duration, long bool) {
	s := os.Getenv("LANEWAY_SOAK")
	if s == "" {
		return 6 * time.Second, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("LANEWAY_SOAK=%s: %v", s, err)
	}
	return d, true
}

// soakPlane is the plane of it; LANEWAY_SOAK_PLANE=tcp names another.
func soakPlane() string {
	if p := os.Getenv("LANEWAY_SOAK_PLANE"); p != "" {
		return p
	}
	return "quic"
}

// TestSoak: workers come, leave and are killed under clients of every kind: that read all, that leave, that are slow,
// that read nothing any more, that ask for nonsense. Afterwards every request is accounted for, and what a process
// holds is back at what it was before.
func TestSoak(t *testing.T) {
	t.Parallel()
	const churners = 3
	lasts, long := soakFor(t)
	clients := 48 / scale
	writeTimeout := "--write-timeout=1s"
	if long {
		clients *= 4
		writeTimeout = "--write-timeout=3s"
	}
	plane := "--response-plane=" + soakPlane()
	w := newWorld(t)
	stable := []*worker{
		w.startWorker(t, "stable-0", 16, plane, "--inter-token-latency=5ms"),
		w.startWorker(t, "stable-1", 16, plane, "--inter-token-latency=5ms"),
		w.startWorker(t, "big", 2, plane, "--model=big", "--token-bytes=4096", "--inter-token-latency=2ms"),
	}
	starting := func(i int) *worker {
		return w.startWorker(t, fmt.Sprintf("churn-%d", i), 8, plane, "--inter-token-latency=5ms",
			"--drain-grace=200ms", "--drain-timeout=1s")
	}
	churning := make([]*worker, churners)
	for i := range churning {
		churning[i] = starting(i)
	}
	for _, k := range append(stable, churning...) {
		k.ready(t)
	}
	const workers = 2*16 + 2 + churners*8
	f := w.startFrontend(t, plane, writeTimeout, "--first-token-timeout=5s", "--inactivity-timeout=10s",
		"--sse-keepalive=100ms").serving(t)
	f.sees(t, workers)

	s := newSoak(t, f)
	s.run(clients, min(lasts/3, 10*time.Second)) // fills pools and caches
	s.rest(t, stable)
	before := map[string]holding{"frontend": s.holds(t, f.admin)}
	for _, k := range stable {
		before[k.name] = s.holds(t, k.admin)
	}
	began, made := time.Now(), f.records(t)

	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var churn sync.WaitGroup
	kills, leaves := 0, 0
	random := rand.New(rand.NewPCG(s.seed, 1))
	churn.Go(func() {
		s.run(clients, lasts)
	})
	for ctx.Err() == nil { // the test's goroutine starts and ends workers
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(300+random.IntN(1500)) * time.Millisecond):
			i := random.IntN(churners)
			select {
			case <-churning[i].done:
				churning[i] = starting(i)
			default:
				if random.IntN(2) == 0 {
					churning[i].kill()
					kills++
				} else {
					churning[i].signal(syscall.SIGTERM)
					leaves++
				}
			}
		}
	}
	churn.Wait()
	took := time.Since(began)
	for i, k := range churning {
		select {
		case <-k.done:
			churning[i] = starting(i)
		default:
			if len(k.lines("msg=\"stopping")) > 0 {
				k.exit(t)
				churning[i] = starting(i)
			}
		}
	}
	f.sees(t, workers)
	s.rest(t, stable)
	t.Logf("%v over %s: %.0f events a second; %d kills, %d orderly ends; clients: %v", took.Round(time.Second),
		soakPlane(), (f.records(t)-made)/took.Seconds(), kills, leaves, s.seen)
	s.accounts(t)
	if kills == 0 && leaves == 0 || s.seen["complete"] == 0 || s.seen["left"] == 0 || s.seen["stalled"] == 0 {
		t.Errorf("too little happened: %v", s.seen)
	}

	// The frontend still dials processes that have gone for a minute, and holds something for each.
	gone := kills + leaves
	ends := func(name, admin string) {
		was, room := before[name], 4.0*(1<<20)
		if name == "big" { // it keeps the chunks of as many full windows as there were at once
			room += float64(clients * 64 << 10)
		}
		settled := func(h holding) bool {
			return h.goroutines <= was.goroutines*1.05+10 && h.files <= was.files+10 && h.heap <= was.heap*1.05+room
		}
		if long {
			for end := time.Now().Add(2 * time.Minute); !settled(s.holds(t, admin)) && time.Now().Before(end); {
				time.Sleep(time.Second)
			}
		}
		h := s.holds(t, admin)
		t.Logf("%s: before %v, after %v", name, was, h)
		if !long { // allow for what the processes that have gone still have
			h.goroutines -= float64(12 * gone)
			h.files -= float64(2 * gone)
			h.heap -= float64(gone << 20)
		}
		if !settled(h) {
			t.Errorf("%s does not return to where it was: before %v, after %v", name, was, h)
		}
	}
	ends("frontend", f.admin)
	for _, k := range stable {
		ends(k.name, k.admin)
	}
}

// holding is what a process holds when it has nothing to do.
type holding struct{ goroutines, heap, files float64 }

func (h holding) String() string {
	return fmt.Sprintf("%.0f goroutines, %.1f MiB heap, %.0f files", h.goroutines, h.heap/(1<<20), h.files)
}

// holds collects garbage in the process first.
func (s *soak) holds(t *testing.T, admin string) holding {
	t.Helper()
	for range 2 { // a pool needs two collections to be empty
		s.f.w.get(t, admin+"/debug/pprof/heap?gc=1")
	}
	m := s.f.w.metrics(t, admin)
	return holding{m["go_goroutines"], m["go_memstats_heap_alloc_bytes"], m["process_open_fds"]}
}

// rest waits until nothing is open anywhere, and gives up the clients' connections.
func (s *soak) rest(t *testing.T, stable []*worker) {
	t.Helper()
	for _, c := range s.fronts {
		c.w.client.CloseIdleConnections()
	}
	s.f.quiet(t)
	for _, k := range stable {
		k.quiet(t)
	}
	eventually(t, "frontend without clients", func() bool {
		m := s.f.w.metrics(t, s.f.admin)
		return m["laneway_frontend_open_connections"] == 0 &&
			m[`laneway_frontend_inflight_requests{model="mock"}`] == 0 &&
			m[`laneway_frontend_inflight_requests{model="big"}`] == 0
	})
}

// accounts compares what clients have seen with what the frontend has counted.
func (s *soak) accounts(t *testing.T) {
	t.Helper()
	started, ended, by := 0.0, 0.0, map[string]float64{}
	m := s.f.w.metrics(t, s.f.admin)
	for name, v := range m {
		switch {
		case strings.HasPrefix(name, "laneway_frontend_requests_started_total{"):
			started += v
		case strings.HasPrefix(name, "laneway_frontend_requests_total{"):
			ended += v
			_, rest, _ := strings.Cut(name, `error_type="`)
			label, _, _ := strings.Cut(rest, `"`)
			by[label] += v
		}
	}
	t.Logf("frontend: %v started, %v ended: %v", started, ended, by)
	sent := 0
	for _, n := range s.seen {
		sent += n
	}
	if started != ended {
		t.Errorf("%v requests started, %v have ended", started, ended)
	}
	// Of those that left, some had ended otherwise before, and some had not even come. One that was cut counts as left,
	// and as slow.
	left, stalled, cut := float64(s.seen["left"]), float64(s.seen["stalled"]), float64(s.seen["cut"])
	left += cut
	if started > float64(sent) || started < float64(sent)-left {
		t.Errorf("%v requests started, clients sent %d and left %v", started, sent, left)
	}
	if c := by["cancelled"]; m["laneway_frontend_disconnected_clients_total"] != c {
		t.Errorf("%v are counted as cancelled, %v clients as gone", c, m["laneway_frontend_disconnected_clients_total"])
	}
	if slow := m["laneway_frontend_slow_clients_total"]; slow < stalled || cut > slow+left/10 {
		t.Errorf("%v clients are counted as slow, %v stalled and %v were cut", slow, stalled, cut)
	}
	seen := map[string]float64{"cancelled": stalled}
	for label, n := range s.seen {
		switch label {
		case "left", "stalled", "cut":
		case "complete":
			seen[""] = float64(n)
		default:
			seen[label] = float64(n)
		}
	}
	for label, n := range seen { // also those that the frontend does not count
		by[label] += 0
		if v := by[label]; v < n || v > n+left {
			t.Errorf("%q: clients have seen %v, the frontend counts %v, %v left", label, n, v, left)
		}
	}
	for label, v := range by { // and those that no client has seen
		if _, ok := seen[label]; !ok && v > left {
			t.Errorf("%q: the frontend counts %v, no client has seen one", label, v)
		}
	}
}

// records is how many records the frontend has got.
func (f *frontend) records(t *testing.T) float64 {
	t.Helper()
	sum := 0.0
	for name, v := range f.w.metrics(t, f.admin) {
		if strings.HasPrefix(name, `laneway_plane_records_total{direction="in"`) {
			sum += v
		}
	}
	return sum
}

// http2 is the frontend to a client that speaks HTTP/2 to it.
func (f *frontend) http2() *frontend {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	world := *f.w
	world.client = &http.Client{Transport: tr}
	front := *f
	front.w = &world
	return &front
}
