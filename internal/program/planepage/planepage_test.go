package planepage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const evil = `"><script>alert(1)</script>&<img src=x>`

func TestWants(t *testing.T) {
	const chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for _, c := range []struct {
		accept, query string
		page, bad     bool
	}{
		{"", "", false, false},
		{"*/*", "", false, false},
		{"application/json", "", false, false},
		{chromium, "", true, false},
		{"text/html", "", true, false},
		{"text/html;q=0", "", false, false},
		{"text/html;q=0.5, application/json", "", false, false},
		{"text/html;q=0.9, application/json;q=0.8", "", true, false},
		{"application/json, text/html", "", true, false},
		{"text/*", "", false, false},
		{chromium, "format=json", false, false},
		{"application/json", "format=html", true, false},
		{chromium, "format=xml", false, true},
		{chromium, "format=", false, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/plane?"+c.query, nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		w := httptest.NewRecorder()
		page, err := Wants(w, r)
		if page != c.page || (err != nil) != c.bad || w.Header().Get("Vary") != "Accept" {
			t.Errorf("Accept %q, query %q: page %t, error %v", c.accept, c.query, page, err)
		}
	}
}

func TestRefreshOf(t *testing.T) {
	for query, want := range map[string]int{"": 0, "refresh=0": 0, "refresh=10": 10, "refresh=3": -1, "refresh=x": -1,
		"refresh=": -1} {
		got, err := RefreshOf(httptest.NewRequest(http.MethodGet, "/debug/plane?"+query, nil))
		if want < 0 {
			if err == nil || !strings.Contains(err.Error(), "0 2 10 60") {
				t.Errorf("%q: %v", query, err)
			}
			continue
		}
		if err != nil || got.Every != want {
			t.Errorf("%q: %+v, %v", query, got, err)
		}
	}
}

func TestKeeper(t *testing.T) {
	start := time.Unix(1000, 0)
	k := NewKeeper(start)
	stats := func(n uint64) responseplane.Stats {
		return responseplane.Stats{RecordsIn: n, StreamsEnded: map[string]uint64{"complete": n / 2, "lost": n / 2},
			Writes: map[string]uint64{"gap": n}}
	}
	for _, c := range []struct {
		at     time.Duration
		n      uint64
		window float64
		since  bool
		rate   float64
	}{
		{10 * time.Second, 100, 10, true, 10},
		{10500 * time.Millisecond, 110, 10.5, true, 110 / 10.5}, // too soon for a window of its own
		{12 * time.Second, 200, 2, false, 50},
		{12500 * time.Millisecond, 250, 2.5, false, 60},
		{15 * time.Second, 230, 3, false, 10},
		{20 * time.Second, 100, 5, false, 0}, // a counter that falls is no rate
	} {
		r := k.Rates(start.Add(c.at), stats(c.n))
		if r.WindowSeconds != c.window || r.SinceStart != c.since || r.RecordsIn != c.rate || r.Ended != c.rate ||
			r.Writes != c.rate {
			t.Errorf("at %v: %+v, expected %+v", c.at, r, c)
		}
	}
}

func node(i byte) responseplane.NodeID { return responseplane.NodeID{0xa, i} }

// many is a frontend with n worker processes of 64 workers each, of which process 1 holds.
func many(n int) *Frontend {
	f := &Frontend{Process: "front", At: time.Unix(1e9, 0), Open: n * 100, Models: []string{"m"}, OutPath: "inline",
		NoRing: "seccomp forbids it", Refresh: &Refresh{Choices: refreshChoices, Path: PlanePath},
		Config: map[string]string{"name": "front"}, Settings: []planeflags.Setting{{Name: "max-mtu", Asked: "0",
			InForce: "discovery up to 1452"}}}
	f.Load.ITL = 10 * time.Millisecond
	for p := range n {
		name := fmt.Sprintf("process-%03d", p)
		for w := range 64 {
			f.Workers = append(f.Workers, responseplane.WorkerStatus{ID: fmt.Sprintf("%s-%d", name, w), Name: name,
				Node: node(byte(p)).String(), Reachable: true, Plane: "quic", Open: 1})
		}
		l := responseplane.ProcessLoad{Node: node(byte(p)), Name: name, Streaming: 90, Waiting: 10,
			LongestWait: time.Second, First: 50, MeanFirst: 20 * time.Millisecond}
		if p == 1 {
			l.MeanFirst = time.Second
		}
		f.Load.Processes = append(f.Load.Processes, l)
		f.Stats.Lanes = append(f.Stats.Lanes, responseplane.LaneStats{Peer: node(byte(p)), PeerName: name,
			Plane: "quic", Local: fmt.Sprintf("127.0.0.1:%d", 4000+p), RTT: 1500 * time.Microsecond, Streams: 100})
		f.Sockets = append(f.Sockets, transport.SocketInfo{Plane: "quic", Role: transport.RoleLane, Port: 4000 + p,
			RecvAsked: 8 << 20, RecvGranted: 8 << 20, SendAsked: 1 << 20, SendGranted: 2 << 20, MaxMTU: 1452, GSO: true,
			Drops: 7})
	}
	f.Loads = Loads(f.Workers, f.Load)
	return f
}

func render(t *testing.T, p *Page) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.Serve(w, http.StatusOK)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp,
		"default-src 'none'; style-src 'sha256-") || strings.Contains(csp, "script-src") {
		t.Errorf("policy %q", csp)
	}
	body := w.Body.String()
	for _, no := range []string{"<script", "<img", "http://", "https://", "@import", "style=\""} {
		if strings.Contains(body, no) {
			t.Errorf("the page has %q", no)
		}
	}
	return body
}

func TestFrontendPage(t *testing.T) {
	f := many(8)
	f.Workers[3].Reachable, f.Workers[3].Err = false, "connection refused"
	f.Loads = Loads(f.Workers, f.Load)
	f.Stats.Fallbacks = []mux.Fallback{{From: "quic", To: "tls", Reason: "timeout", Links: 3}}
	f.Stats.AddressesRefused = map[string]uint64{"loopback": 2}
	f.Load.Silent = []responseplane.RequestBrief{{ID: "a/b c?", State: "waiting"}, {State: "routing"}}
	body := render(t, f.Page())
	for _, want := range []string{"511 of 512", "1 worker of 512 cannot be reached",
		"process-001 <strong>holder</strong>", "connection refused", "seccomp forbids it", "discovery up to 1452",
		"<td>1452</td><td>on/off</td>", "1.5 ms", "8 sockets got less than that",
		`<td class="left">timeout</td><td class="bad">3</td>`, "loopback", `href="/debug/plane/streams/a%2Fb%20c%3F"`,
		"(no id)",
		"10.0 ms", "100 (10 wait)", "longest wait 1.0 s"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, `http-equiv="refresh"`) {
		t.Error("the page loads itself again unasked")
	}
	if n := strings.Count(body, "<strong>holder</strong>"); n != 1 {
		t.Errorf("%d holders are marked", n)
	}
	f.Refresh.Every = 10
	if body := render(t, f.Page()); !strings.Contains(body, `<meta http-equiv="refresh" content="10">`) ||
		!strings.Contains(body, `href="/debug/plane?refresh=10" aria-current="true">10 s`) {
		t.Error("the page does not load itself again")
	}
}

func TestPageStaysSmall(t *testing.T) {
	f := many(200) // 12,800 workers
	body := render(t, f.Page())
	if n := strings.Count(body, `<p class="who">`); n != maxLines ||
		!strings.Contains(body, "process-001 <strong>holder</strong>") ||
		!strings.Contains(body, "busiest 64 of 200 processes") {
		t.Errorf("%d processes are drawn", n)
	}
	if !strings.Contains(body, "11,800 more are in the JSON") || len(body) > 1<<20 {
		t.Errorf("%d bytes", len(body))
	}
}

func TestEmptyPages(t *testing.T) {
	body := render(t, (&Frontend{NotReady: "no worker is known"}).Page())
	if !strings.Contains(body, "Not ready: no worker is known") ||
		!strings.Contains(body, "No worker process is known.") {
		t.Error("an empty frontend's page does not say so")
	}
	render(t, (&Worker{}).Page())
}

func TestWorkerPage(t *testing.T) {
	w := &Worker{Process: "p", Model: evil, Engines: []Engine{{"w-0", 1, 0}, {"w-1", 30, 2}},
		Refresh: &Refresh{Choices: refreshChoices, Path: PlanePath}}
	body := render(t, w.Page())
	if !strings.Contains(body, "31, 2") || strings.Index(body, "w-1</td>") > strings.Index(body, "w-0</td>") {
		t.Error("the busiest engine is not first")
	}
}

func TestEverythingIsEscaped(t *testing.T) {
	f := many(2)
	f.Process, f.Models, f.NotReady, f.OutPath, f.NoRing = evil, []string{evil}, evil, evil, evil
	f.Workers[0].ID, f.Workers[0].Name, f.Workers[0].Err, f.Workers[1].Models = evil, evil, evil, []string{evil}
	f.Load.Processes[0].Name, f.Stats.Lanes[0].PeerName, f.Config[evil] = evil, evil, evil
	f.Load.Silent = []responseplane.RequestBrief{{ID: evil, Worker: evil, Name: evil, Model: evil}}
	f.Stats.Fallbacks = []mux.Fallback{{From: evil, To: evil, Reason: evil, Links: 1}}
	f.Loads = Loads(f.Workers, f.Load)
	if body := render(t, f.Page()); !strings.Contains(body, "&lt;script&gt;") {
		t.Error("nothing was escaped")
	}
	s := NewStream([]responseplane.RequestInfo{{ID: evil, ClientID: evil, Model: evil, Err: errors.New(evil),
		Attempts: []responseplane.AttemptInfo{{Worker: evil, Name: evil, Err: errors.New(evil)}}},
		{ID: evil, State: evil}}, 3)
	render(t, s.Page(&Refresh{Path: StreamPath(evil)}))
	w := httptest.NewRecorder()
	Missing(evil).Serve(w, http.StatusNotFound)
	if w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "<script") ||
		!strings.Contains(w.Body.String(), "ended in the last minute") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestStreamKeys holds the names that scripts read.
func TestStreamKeys(t *testing.T) {
	began := time.Unix(1e9, 0)
	info := responseplane.RequestInfo{ID: "r", Model: "m", State: responseplane.RequestEnded, Began: began,
		Ended: began.Add(time.Second),
		Attempts: []responseplane.AttemptInfo{{Worker: "w0", Name: "p0", Began: began,
			Err: &responseplane.Error{Kind: responseplane.EndRefused, Code: responseplane.CodeBusy}},
			{Worker: "w1", Name: "p1", Node: node(1), Began: began.Add(time.Millisecond)}},
		Stream: &responseplane.StreamInfo{Slot: 1, Generation: 2, Number: 3, Link: 4, State: "ended", Window: 65536,
			Received: 300, Consumed: 200, Reported: 100, Records: 2, Bytes: 9,
			First: began.Add(21 * time.Millisecond), Last: began.Add(31 * time.Millisecond), Moves: 1}}
	text, err := json.Marshal(NewStream([]responseplane.RequestInfo{info}, 1))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"request": "r", "state": "ended", "worker": "w1", "process": "p1", "stream_state": "ended",
		"records": 2.0, "first_record_ms": 20.0, "last_record_ms": 30.0, "moves": 1.0, "slot": 1.0, "number": 3.0}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %v, expected %v", k, got[k], v)
		}
	}
	for _, k := range []string{"began", "ended", "node", "offsets", "lanes", "last_headers", "attempts", "stop_asked"} {
		if _, ok := got[k]; !ok {
			t.Errorf("no %s in %s", k, text)
		}
	}
	if o := got["offsets"].(map[string]any); o["received"] != 300.0 || o["consumed"] != 200.0 ||
		o["reported"] != 100.0 || o["window"] != 65536.0 {
		t.Errorf("offsets %v", o)
	}
	if e, ok := got["end"]; ok {
		t.Errorf("an end that is not known: %v", e)
	}
	info.Err = &responseplane.Error{Kind: responseplane.EndRefused, Code: responseplane.CodeBusy, Text: "full"}
	if s := NewStream([]responseplane.RequestInfo{info}, 1); s.End == nil ||
		*s.End != (End{Type: "refused", Code: "busy", Text: "full", Retryable: true}) {
		t.Errorf("end %+v", s.End)
	}
}
