package netns

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

const (
	// replaceTarget is within which a lane that its path broke is to be replaced. On a loaded machine a test fails at
	// ten times that.
	replaceTarget = 5 * time.Second
	replaceBound  = 10 * replaceTarget
	// smaller is what the MTU of a path is lowered to.
	smaller = 1400
	// loadTime is how long load is started: past the replacement on a machine that is not overloaded.
	loadTime = 8 * time.Second
)

// replaced waits until lanes have died and all are up again on the plane, and says how long that took.
func (r *rig) replaced(t *testing.T, plane string, since time.Time) {
	t.Helper()
	var m map[string]float64
	await(t, replaceBound, "lanes to die and to be up again", func() bool {
		m = r.metrics(t)
		return sum(m, "laneway_lane_deaths_total") > 0 && upOf(m, plane) >= r.lanes
	})
	t.Logf("up again after %s", time.Since(since).Round(10*time.Millisecond))
}

// settled says what the lanes have gone through in all, and fails when they went on dying.
func (r *rig) settled(t *testing.T, most int) {
	t.Helper()
	m := r.metrics(t)
	var deaths []string
	for k, v := range m {
		if strings.HasPrefix(k, "laneway_lane_deaths_total{") && v > 0 {
			deaths = append(deaths, fmt.Sprintf("%s %v", k, v))
		}
	}
	t.Logf("streams moved %v, deaths %v", sum(m, "laneway_lane_takeovers_total"), deaths)
	if n := sum(m, "laneway_lane_deaths_total"); int(n) > most {
		t.Errorf("lanes died %v times, expected at most %d: %v", n, most, deaths)
	}
}

// ip runs iproute2 in a node's namespace.
func (r *rig) ip(t *testing.T, node string, args ...string) {
	t.Helper()
	full := append([]string{"-n", r.net.Node(node).Namespace}, args...)
	if out, err := exec.CommandContext(t.Context(), "ip", full...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(full, " "), err, out)
	}
}

// lowerMTU sets the MTU of the path to a node, both ends of it, to 1,400: from now on its own larger packets are
// refused and others' are dropped.
func (r *rig) lowerMTU(t *testing.T, node string) {
	t.Helper()
	d := r.net.Node(node)
	if err := r.net.Hub().IP(t.Context(), "link set "+d.Port+" mtu "+strconv.Itoa(smaller)); err != nil {
		t.Fatal(err)
	}
	if err := d.IP(t.Context(), "link set "+d.Interface+" mtu "+strconv.Itoa(smaller)); err != nil {
		t.Fatal(err)
	}
}

// drop makes a node drop what comes in and matches, such as "ipproto udp dport 7001", without a word to the sender: a
// rule before the one that finds local addresses. It needs no packet filter.
func (r *rig) drop(t *testing.T, node string, match ...string) {
	t.Helper()
	for _, family := range []string{"-4", "-6"} {
		rule := func(args ...string) { r.ip(t, node, append([]string{family, "rule"}, args...)...) }
		rule(append([]string{"add", "pref", "5", "blackhole"}, match...)...)
		rule("add", "pref", "10", "lookup", "local")
		rule("del", "pref", "0")
	}
}

func TestMTUShrinks(t *testing.T) {
	for _, c := range []struct {
		name, plane, node string
		lanes             int
		ipv6              bool
	}{
		{"quic, at the worker, one lane", "quic", "worker", 1, false},
		{"quic, at the frontend, IPv6", "quic", "frontend", 2, true},
		{"tcp, at the frontend", "tcp", "frontend", 2, false},
		{"tls, at the worker, IPv6", "tls", "worker", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, setup{planes: c.plane, lanes: c.lanes, ipv6: c.ipv6})
			r.startLoad(t, loadTime)
			if c.plane == "quic" {
				if n := r.largestPacket(t, "worker", smaller, patience); n <= smaller {
					t.Fatalf("packets of at most %d bytes were seen, so this shows nothing", n)
				}
			}
			r.lowerMTU(t, c.node)
			if began := time.Now(); c.plane == "quic" { // TCP finds the smaller size by itself
				r.replaced(t, c.plane, began)
			}
			run := r.finishSettled(t, 2*r.lanes)
			if c.plane == "quic" && *run.Plane.Takeovers == 0 {
				t.Error("no stream was moved, so this shows nothing")
			}
		})
	}
}

func TestOnePortBlocked(t *testing.T) {
	for _, plane := range []string{"quic", "tls"} {
		t.Run(plane, func(t *testing.T) {
			r := newRig(t, setup{planes: plane, lanes: 2})
			port := r.lanePort(t, plane)
			r.startLoad(t, loadTime)
			proto := "udp"
			if plane != "quic" {
				proto = "tcp"
			}
			r.drop(t, "worker", "ipproto", proto, "dport", port)
			r.drop(t, "frontend", "ipproto", proto, "sport", port)
			r.replaced(t, plane, time.Now())
			run := r.finishSettled(t, 2)
			if *run.Plane.Takeovers == 0 {
				t.Error("no stream was moved, so this shows nothing")
			}
		})
	}
}

// TestAllUDPBlocked: the open responses go on over TLS, after the three seconds that show that a lane is dead and the
// one in which QUIC is asked again. Requests that come meanwhile, five each second, wait; none is refused.
func TestAllUDPBlocked(t *testing.T) {
	r := newRig(t, setup{planes: "quic,tls", lanes: 2})
	r.startLong(t)
	// By port, so that nothing is refused where it is sent: it just does not come.
	ports := fmt.Sprintf("%d-%d", firstPort, lastPort)
	r.drop(t, "worker", "ipproto", "udp", "dport", ports)
	r.drop(t, "frontend", "ipproto", "udp", "sport", ports)
	answered := r.ask(t)
	r.replaced(t, "tls", time.Now())
	if n := answered(); n < 10 {
		t.Errorf("%d requests came while UDP was blocked, too few to show anything", n)
	}
	m := r.metrics(t)
	if n := sum(m, "laneway_plane_fallbacks_total", `from="quic"`, `to="tls"`); n < 1 {
		t.Errorf("%v fallbacks were counted", n)
	}
	run := r.finishSettled(t, 2*r.lanes)
	if *run.Plane.Takeovers == 0 || run.Plane.PlaneRecords["tls"] == 0 || run.Plane.PlaneRecords["quic"] == 0 {
		t.Errorf("moved %v, records %v", *run.Plane.Takeovers, run.Plane.PlaneRecords)
	}
}

// ask makes a request each 200 ms until the function that it returns is called, which waits for the answers and counts
// them. Each must be a whole one.
func (r *rig) ask(t *testing.T) (answered func() int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var wg, asking sync.WaitGroup
	n := 0
	one := func(i int) {
		began := time.Now()
		resp, err := r.client.Post("http://"+r.http+"/v1/completions", "application/json",
			strings.NewReader(`{"model":"mock","prompt":"x","max_tokens":5}`))
		if err != nil {
			t.Errorf("request %d, after %v: %v", i, time.Since(began), err)
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"completion_tokens":5`) {
			t.Errorf("request %d, after %v: %s, %v: %s", i, time.Since(began), resp.Status, err, body)
		}
	}
	asking.Go(func() { // until answered is called or the test ends
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			i := n
			n++
			wg.Go(func() { one(i) }) // bounded by the client's timeout
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() int {
		stop()
		asking.Wait()
		wg.Wait()
		return n
	}
}

// lanePort is the worker's port of one of the lanes.
func (r *rig) lanePort(t *testing.T, plane string) string {
	t.Helper()
	fs, err := procfs.NewFS("/proc/" + strconv.Itoa(r.frontend.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	if plane == "quic" {
		lines, err := fs.NetUDP()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if p := int(l.RemPort); p >= firstPort && p <= lastPort {
				found = p
			}
		}
	} else {
		lines, err := fs.NetTCP()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if p := int(l.RemPort); p >= firstPort && p <= lastPort && l.St == 1 {
				found = p
			}
		}
	}
	if found == 0 {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(r.frontend.cmd.Process.Pid) + "/net/udp")
		t.Fatalf("the frontend has no lane to the ports from %d on:\n%s", firstPort, b)
	}
	return strconv.Itoa(found)
}
