// Package planepage looks at a frontend's /debug/plane in a headless Chromium while 512 workers in 8 processes stream
// thousands of responses. The picture in docs/ is made by
//
//	go test ./planepage -run Page -open 8192 -picture ../../../docs/plane-page.png -timeout 10m
package planepage

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/test/conformance/internal/browser"
	"github.com/laneway-ai/laneway/test/conformance/internal/programs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	open    = flag.Int("open", 2000, "open responses while the page is looked at")
	picture = flag.String("picture", "", "write the picture of the page to this PNG file")
)

const (
	processes, workers = 8, 512
	patience           = 5 * time.Minute
	model              = "mock-model"
)

// cluster is a frontend with its workers. Process 6 holds: it answers late.
type cluster struct{ url, admin, worker string }

func startCluster(t *testing.T) *cluster {
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
	var all []*programs.Process
	for i := range processes {
		args := common(fmt.Sprint("worker-", i), fmt.Sprint("--num-workers=", workers/processes),
			"--bind-addr=127.0.0.1:0", "--drain-grace=0", "--drain-timeout=1s", "--model="+model,
			"--time-to-first-token=50ms", "--inter-token-latency=2s", "--max-num-seqs=64")
		if i == 6 {
			args = append(args, "--hold-share=1", "--hold-delay=8s")
		}
		all = append(all, programs.Start(t, fmt.Sprint("worker-", i), pr.Worker, args...))
	}
	c := &cluster{worker: all[0].Says(t, "ready", "admin")}
	for _, p := range all {
		p.Says(t, "ready", "admin")
	}
	front := programs.Start(t, "frontend", pr.Frontend, common("frontend-0", "--http-addr=127.0.0.1:0",
		"--drain-timeout=1s", "--drain-grace=0")...)
	c.url, c.admin = front.Says(t, "serving", "http"), front.Says(t, "serving", "admin")
	c.wait(t, "all workers", func(v *view) bool { return v.Workers.Reachable == workers })
	return c
}

// view is what of the JSON the test needs.
type view struct {
	Open    int `json:"open_requests"`
	Workers struct{ Reachable int }
	Load    struct {
		Streaming, Holders int
		Processes          []struct {
			Process   string
			Holder    bool
			Streaming int
		}
	}
}

func (c *cluster) wait(t *testing.T, what string, ok func(*view) bool) *view {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		resp, err := http.Get(c.admin + "/debug/plane")
		if err != nil {
			t.Fatal(err)
		}
		v := new(view)
		err = json.NewDecoder(resp.Body).Decode(v)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if ok(v) {
			return v
		}
		if time.Now().After(end) {
			t.Fatalf("no %s: %+v", what, v)
		}
	}
}

// load holds n responses open until the test ends, and returns the id of one.
func (c *cluster) load(t *testing.T, n int) (id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tr := &http.Transport{}
	client := &http.Client{Transport: tr}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		tr.CloseIdleConnections()
	})
	ids := make(chan string, n)
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hello"}],"stream":true,"max_tokens":4096}`,
		model)
	slots := make(chan struct{}, 512) // that wait for their first record
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/chat/completions",
				strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-Request-Id", fmt.Sprint("chat-", i))
			resp, err := client.Do(req)
			<-slots
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("request %d: %s", i, resp.Status)
				return
			}
			ids <- resp.Header.Get("X-Request-Id")
			_, _ = io.Copy(io.Discard, bufio.NewReaderSize(resp.Body, 512)) // until the test ends
		})
	}
	select {
	case id = <-ids:
	case <-time.After(patience):
		t.Fatal("no response began")
	}
	return id
}

var sights = []struct {
	scheme string
	width  int
}{{"light", 1240}, {"light", 390}, {"dark", 1240}, {"dark", 390}}

const texts = "h1, h2, p, td, th, dt, dd, summary, a, label, button, .bar span"

func TestPage(t *testing.T) {
	c := startCluster(t)
	id := c.load(t, *open)
	v := c.wait(t, "open responses that all stream, and the holder", func(v *view) bool {
		return v.Open == *open && v.Load.Streaming == *open && v.Load.Holders == 1
	})
	if p := v.Load.Processes; len(p) != processes || !p[6].Holder || p[6].Process != "worker-6" {
		t.Errorf("processes %+v", p)
	}
	b := browser.Open(t)
	page, stream, worker := c.admin+"/debug/plane", c.admin+"/debug/plane/streams/"+id, c.worker+"/debug/plane"
	// not to wait for anything: so that the picture shows rates over more than a second
	time.Sleep(1100 * time.Millisecond)
	grounds := map[string]string{}
	for _, s := range sights {
		for name, url := range map[string]string{"plane": page, "stream": stream, "worker": worker} {
			t.Run(fmt.Sprint(name, " ", s.scheme, " ", s.width), func(t *testing.T) {
				b.T = t
				b.Show(url, s.scheme, s.width)
				b.Quiet(url)
				shot := b.Picture(fmt.Sprint(name, "-", s.scheme, "-", s.width))
				browser.CheckPicture(t, shot, 3)
				if name == "plane" && s == sights[0] && *picture != "" {
					if err := os.WriteFile(*picture, fewColours(t, shot), 0o644); err != nil {
						t.Error(err)
					}
				}
				b.Eval(`document.querySelectorAll('details').forEach(d => d.open = true)`, nil)
				checkLayout(t, b)
				b.Contrast(texts, 30)
				var ground string
				b.Eval(`getComputedStyle(document.body).backgroundColor`, &ground)
				grounds[s.scheme] = ground
			})
		}
	}
	b.T = t
	if grounds["light"] == grounds["dark"] || grounds["light"] == "" {
		t.Errorf("grounds %v", grounds)
	}
	t.Run("content", func(t *testing.T) { b.T = t; checkContent(t, b, page) })
	t.Run("keyboard", func(t *testing.T) { b.T = t; checkKeyboard(t, b, page, id) })
}

func checkContent(t *testing.T, b *browser.Browser, page string) {
	b.Show(page, "light", 1240)
	var got struct {
		Holders         []string
		Loads, Scripts  int
		Nodes, Bytes    int
		Workers, Closed int
		Text            string
	}
	b.Eval(`({holders: [...document.querySelectorAll('.loads li.holder .who')].map(e => e.innerText.toLowerCase()), loads: document.querySelectorAll('.loads li').length,
		scripts: document.scripts.length, nodes: document.querySelectorAll('*').length, bytes: document.documentElement.outerHTML.length,
		workers: [...document.querySelectorAll('#workers details')][1].querySelectorAll('tbody tr').length, closed: document.querySelectorAll('details:not([open])').length, text: document.body.innerText})`, &got)
	if len(got.Holders) != 1 || !strings.HasPrefix(got.Holders[0], "worker-6") || got.Loads != processes ||
		got.Scripts != 0 || got.Workers != workers {
		t.Errorf("holders %q, %d processes, %d scripts, %d workers", got.Holders, got.Loads, got.Scripts, got.Workers)
	}
	if got.Nodes > 12_000 || got.Bytes > 1<<20 || got.Closed < 2 {
		t.Errorf("%d elements, %d bytes, %d parts closed", got.Nodes, got.Bytes, got.Closed)
	}
	t.Logf("%d elements, %d bytes", got.Nodes, got.Bytes)
	for _, want := range []string{"512 of 512", "worker-0", "GSO/GRO", "udp-recv-buffer", "quic", "Means over the last",
		"Out path in force"} {
		if !strings.Contains(strings.ToLower(got.Text), strings.ToLower(want)) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// checkLayout holds that nothing stands over the edge of the window or is cut off. What is wider scrolls in a region of
// its own.
func checkLayout(t *testing.T, b *browser.Browser) {
	t.Helper()
	var faults []string
	b.Eval(`(() => {
		const faults = [], wide = window.innerWidth
		if (document.documentElement.scrollWidth > wide + 1) faults.push('the page is ' + document.documentElement.scrollWidth + ' wide in a window of ' + wide)
		for (const e of document.querySelectorAll('body *')) {
			if (e.closest('.skip, svg') || e.parentElement.closest('.scroll')) continue
			const r = e.getBoundingClientRect(), name = e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40)
			if (!r.width) continue
			if (r.left < -1 || r.right > wide + 1) faults.push(name + ' reaches from ' + r.left + ' to ' + r.right)
			if (!e.matches('.scroll, input') && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) faults.push(name + ' is cut off: ' + e.scrollWidth + ' in ' + e.clientWidth)
		}
		return faults.slice(0, 20)
	})()`, &faults)
	for _, f := range faults {
		t.Error(f)
	}
}

func press(b *browser.Browser, key string, code int, text string) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		m := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			m["text"] = text
		}
		b.Call("Input.dispatchKeyEvent", m, nil)
	}
}

func tab(b *browser.Browser)   { press(b, "Tab", 9, "") }
func enter(b *browser.Browser) { press(b, "Enter", 13, "\r") }

// checkKeyboard goes through the page by Tab alone, and uses what it finds by Enter.
func checkKeyboard(t *testing.T, b *browser.Browser, page, id string) {
	b.Show(page, "light", 1240)
	var want int
	b.Eval(`(() => { window.all = [...document.querySelectorAll('a[href], button, input, summary, .scroll')].filter(e => !e.closest('details:not([open])') || e.matches('summary')); return all.length })()`, &want)
	if want < 40 {
		t.Fatalf("%d controls on the page", want)
	}
	for i := range want {
		tab(b)
		var at struct {
			Index   int
			Name    string
			Outline string
			Inside  bool
		}
		b.Eval(`(() => { const e = document.activeElement, r = e.getBoundingClientRect(); return {index: all.indexOf(e), name: e.outerHTML.slice(0, 80), outline: getComputedStyle(e).outlineStyle, inside: r.top < window.innerHeight && r.bottom > 0} })()`, &at)
		if at.Index != i || at.Outline == "none" || !at.Inside {
			t.Fatalf("Tab %d of %d comes to control %d, %s, outline %s, in sight %t", i+1, want, at.Index, at.Name,
				at.Outline, at.Inside)
		}
	}
	var opened bool
	b.Eval(`(() => { window.shut = document.querySelector('details:not([open])'); shut.querySelector('summary').focus() })()`, nil)
	enter(b)
	b.Eval(`shut.open`, &opened)
	if !opened {
		t.Error("Enter does not open a summary")
	}
	b.Eval(`document.querySelector('input[name=id]').focus()`, nil)
	b.Call("Input.insertText", map[string]any{"text": id}, nil)
	b.Loads(func() { enter(b) })
	var title, at string
	b.Eval(`document.title`, &title)
	b.Eval(`location.pathname`, &at)
	var named bool // the title has the answer's own id, the client's is on the page
	b.Eval(fmt.Sprintf(`document.body.textContent.includes(%q)`, id), &named)
	if !strings.HasPrefix(title, "Request ") || !named || at != "/debug/plane/streams/"+id {
		t.Errorf("the form leads to %q at %s, which names the request: %t", title, at, named)
	}
	b.Eval(`document.querySelector('header p a').focus()`, nil)
	b.Loads(func() { enter(b) })
	b.Eval(`location.pathname`, &at)
	if at != "/debug/plane" {
		t.Errorf("the link back leads to %s", at)
	}
}
