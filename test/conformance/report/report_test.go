// Package report shows reports and plots in a headless Chromium.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/analysis"
	"github.com/laneway-ai/laneway/internal/lab/analysis/runtest"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/test/conformance/internal/browser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const evil = `"><script>document.title='owned'</script><img src=x onerror="document.title='owned'">`

// rich is a run that has everything: two holders, errors, marks, drops, lanes, settings.
func rich(requests int) runtest.Spec {
	first := make([]time.Duration, 8)
	for i := range first {
		first[i] = time.Duration(20+i) * time.Millisecond
	}
	first[2], first[5] = 3*time.Second, 5*time.Second
	return runtest.Spec{
		ID: "quic-1", Requests: requests, First: first,
		Every: max(time.Duration(100*time.Second)/time.Duration(requests), time.Microsecond), Tokens: 64, Spread: .3,
		Row: func(i int, r *report.Row) {
			if i%101 == 100 {
				r.Ended, r.ErrorType, r.Status, r.OutputTokens = report.EndFailed,
					[]string{"overloaded_error", evil}[i%2], 503, report.Absent
				r.First, r.Last = report.Absent, report.Absent
			}
		},
		Run: func(r *report.Run) {
			r.Label = evil
			r.Mark(report.MarkClientLimited)
			r.Mark(report.MarkMachineLimited)
			r.Config["model"], r.Config["metrics_url"] = evil, []any{"http://127.0.0.1:1/metrics",
				"http://127.0.0.1:2/metrics"}
			r.UDP.Sockets = nil
			for i := range 32 {
				r.UDP.Sockets = append(r.UDP.Sockets, report.UDPSocket{Port: 40000 + i, Lane: report.Ptr(i % 4),
					Drops: report.Ptr(int64(i * i))})
			}
			for i := range 32 {
				r.Plane.Lanes = append(r.Plane.Lanes, report.Lane{Process: fmt.Sprint("worker-", i/4), Lane: i % 4,
					Streams: report.Ptr(int64(1000 + i)), Bytes: report.Ptr(int64(i) << 20)})
			}
			for i := range r.Processes {
				r.Processes[i].GOMAXPROCS = report.Ptr(2)
			}
		},
	}
}

func write(t *testing.T, s runtest.Spec) (dir, page string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), s.ID)
	if err := runtest.Write(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, report.HTMLFile)
}

func TestReportInBrowser(t *testing.T) {
	b := browser.Open(t)
	dir, page := write(t, rich(4000))
	grounds := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1240, 390} {
			t.Run(fmt.Sprint(scheme, " ", width), func(t *testing.T) {
				b.T = t
				b.Show("file://"+page, scheme, width)
				b.Quiet("file://" + page)
				checkLayout(t, b)
				b.Contrast("h1, p, td, th, dt, dd, .tiles span, .tiles strong, svg.plot text, summary", 100)
				var ground string
				b.Eval(`getComputedStyle(document.body).backgroundColor`, &ground)
				grounds[scheme] = ground
				browser.CheckPicture(t, b.Picture(fmt.Sprintf("report-%s-%d", scheme, width)), 4)
			})
		}
	}
	b.T = t
	if grounds["light"] == grounds["dark"] || grounds["light"] == "" {
		t.Errorf("grounds %v", grounds)
	}
	checkNumbers(t, b, dir)
	var title string
	var scripts, images int
	b.Eval(`document.title`, &title)
	b.Eval(`document.scripts.length`, &scripts)
	b.Eval(`document.images.length`, &images)
	if title != evil || scripts != 0 || images != 0 {
		t.Errorf("title %q, %d scripts, %d images: a label became part of the page", title, scripts, images)
	}
	var marked, bands, holders int
	b.Eval(`document.querySelectorAll('#processes rect.marked').length`, &marked)
	b.Eval(`document.querySelectorAll('#processes td .holder').length`, &holders)
	b.Eval(`document.querySelectorAll('#time rect.band').length`, &bands)
	if marked != 2 || holders != 2 || bands < 3 {
		t.Errorf("%d bars and %d lines are marked as holders, %d plots show the steady window", marked, holders, bands)
	}
	var alerts []string
	b.Eval(`[...document.querySelectorAll('[role=alert]')].filter(e => e.getBoundingClientRect().top < 900).map(e => e.innerText.toLowerCase())`, &alerts)
	if s := strings.Join(alerts, "\n"); !strings.Contains(s, "client-limited") ||
		!strings.Contains(s, "machine-limited") || !strings.Contains(s, "requests failed") {
		t.Errorf("not loud on the first screen: %q", alerts)
	}
}

// TestLargeReportInBrowser is a run of 250,000 requests.
func TestLargeReportInBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 75 MB")
	}
	b := browser.Open(t)
	dir, page := write(t, rich(250_000))
	b.Show("file://"+page, "light", 1240)
	b.Quiet("file://" + page)
	checkLayout(t, b)
	checkNumbers(t, b, dir)
	browser.CheckPicture(t, b.Picture("report-large"), 4)
	var nodes int
	b.Eval(`document.querySelectorAll('*').length`, &nodes)
	if nodes > 20_000 {
		t.Errorf("the page has %d elements", nodes)
	}
}

func TestPlotsInBrowser(t *testing.T) {
	b := browser.Open(t)
	dir := t.TempDir()
	for i, plane := range []string{"quic", "quic", "tcp", "tcp"} {
		s := rich(2000)
		s.ID, s.Plane, s.Seed, s.Row = fmt.Sprintf("%s-%d", plane, i), plane, uint64(i), nil
		s.Run = nil
		if err := runtest.Write(filepath.Join(dir, s.ID), s); err != nil {
			t.Fatal(err)
		}
	}
	tab, err := analysis.Analyze(t.Context(), []string{dir}, analysis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := tab.WritePlots(filepath.Join(dir, "plots"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, f := range files {
			b.Show("file://"+f, scheme, 900)
			b.Quiet("file://" + f)
			checkLayout(t, b)
			browser.CheckPicture(t, b.Picture(strings.TrimSuffix(filepath.Base(f), ".svg")+"-"+scheme), 1)
		}
	}
}

// checkLayout holds that nothing stands over the edge, no text of a plot is cut off or covers another, and no plot is
// empty.
func checkLayout(t *testing.T, b *browser.Browser) {
	t.Helper()
	var wide []float64
	b.Eval(`[document.documentElement.scrollWidth, window.innerWidth]`, &wide)
	if wide[0] > wide[1]+1 {
		t.Errorf("the page is %v wide in a window of %v", wide[0], wide[1])
	}
	var faults []string
	b.Eval(`(() => {
		const faults = [], plots = [...document.querySelectorAll('svg.plot')]
		if (!plots.length) faults.push('no plot')
		for (const svg of plots) {
			const name = svg.getAttribute('aria-label').slice(0, 40), box = svg.getBoundingClientRect()
			if (box.width < 100 || box.height < 30) faults.push(name + ' has no size')
			const texts = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]).filter(x => x[1].width)
			for (const [s, r] of texts)
				if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1) faults.push(name + ': ' + s + ' is cut off')
			for (let i = 0; i < texts.length; i++) for (let k = 0; k < i; k++) {
				const [s, a] = texts[i], [u, c] = texts[k]
				if (Math.min(a.right, c.right) - Math.max(a.left, c.left) > 1 && Math.min(a.bottom, c.bottom) - Math.max(a.top, c.top) > 3) faults.push(name + ': ' + s + ' covers ' + u)
			}
			if (svg.querySelectorAll('path.line, circle, rect.bar').length == 0) faults.push(name + ' shows nothing')
		}
		return faults
	})()`, &faults)
	for _, f := range faults {
		t.Error(f)
	}
}

// checkNumbers compares what the browser shows with run.json.
func checkNumbers(t *testing.T, b *browser.Browser, dir string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, report.RunFile))
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	var shown []struct{ Path, Value, Text string }
	b.Eval(`[...document.querySelectorAll('data')].map(e => ({path: e.dataset.f, value: e.value, text: e.innerText}))`,
		&shown)
	compared := 0
	for _, s := range shown {
		v, err := strconv.ParseFloat(s.Value, 64)
		if err != nil || strings.Contains(s.Path, "errors_by_type") {
			continue // words, and keys that hold dots and worse
		}
		var at any = tree
		for _, k := range strings.Split(s.Path, ".") {
			switch x := at.(type) {
			case map[string]any:
				at = x[k]
			case []any:
				i, err := strconv.Atoi(k)
				if err != nil || i >= len(x) {
					t.Fatalf("no %s in run.json", s.Path)
				}
				at = x[i]
			}
		}
		if at != v {
			t.Errorf("%s is %v on the page, %v in run.json", s.Path, v, at)
		}
		compared++
	}
	if compared < 150 {
		t.Errorf("%d numbers compared", compared)
	}
}
