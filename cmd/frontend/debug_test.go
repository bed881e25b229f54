package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// ask is a request to the admin address; redirects are not followed.
func ask(t *testing.T, url, accept string) (code int, h http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestDebugPages(t *testing.T) {
	p := start(t)
	for _, c := range []struct {
		path, accept string
		code         int
		kind, want   string
	}{
		{"/debug/plane", "", 200, "application/json", `"reachable": 1`},
		{"/debug/plane", "application/json", 200, "application/json", `"worker_list"`},
		{"/debug/plane", "text/html,*/*;q=0.8", 200, "text/html; charset=utf-8", "Laneway frontend fe"},
		{"/debug/plane?format=html", "application/json", 200, "text/html; charset=utf-8", "1 of 2"},
		{"/debug/plane?format=json", "text/html", 200, "application/json", `"rates"`},
		{"/debug/plane?format=yaml", "", 400, "text/plain; charset=utf-8",
			`format="yaml": write format=json or format=html`},
		{"/debug/plane?refresh=1", "text/html", 400, "text/plain; charset=utf-8", "write one of 0 2 10 60"},
		{"/debug/plane/streams/there", "", 200, "application/json", `"state": "routing"`},
		{"/debug/plane/streams/there", "text/html", 200, "text/html; charset=utf-8", "Request there"},
		{"/debug/plane/streams/twice", "", 200, "application/json", `"matches": 2`},
		{"/debug/plane/streams/twice", "", 200, "application/json", `"request": "a"`},
		{"/debug/plane/streams/twice", "text/html", 200, "text/html; charset=utf-8", `href="/debug/plane/streams/a"`},
		{"/debug/plane/streams/nope", "", 404, "text/plain; charset=utf-8", `No request "nope"`},
		{"/debug/plane/streams/nope", "text/html", 404, "text/html; charset=utf-8", "Unknown request"},
		{"/debug/plane/streams/%3Cscript%3E", "text/html", 404, "text/html; charset=utf-8", "&lt;script&gt;"},
		{"/debug/plane/streams", "text/html", 400, "text/plain; charset=utf-8", "x-request-id"},
		{"/debug/plane/streams?id=", "", 400, "text/plain; charset=utf-8", "name a request"},
	} {
		code, h, body := ask(t, p.admin+c.path, c.accept)
		if code != c.code || h.Get("Content-Type") != c.kind || !strings.Contains(body, c.want) {
			t.Errorf("%s, Accept %q: %d %s, expected %d %s with %q:\n%s", c.path, c.accept, code, h.Get("Content-Type"),
				c.code, c.kind, c.want, body)
		}
		if strings.Contains(body, "<script") {
			t.Errorf("%s has a script", c.path)
		}
	}
	code, h, _ := ask(t, p.admin+"/debug/plane/streams?id=+a/b+", "text/html")
	if code != http.StatusSeeOther || h.Get("Location") != "/debug/plane/streams/a%2Fb" {
		t.Errorf("the form leads to %d %q", code, h.Get("Location"))
	}
	p.signal()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestDebugKeys holds the names that scripts read.
func TestDebugKeys(t *testing.T) {
	p := start(t)
	_, _, body := ask(t, p.admin+"/debug/plane", "application/json")
	if strings.Contains(body, "null") { // scripts iterate over lists, empty ones too
		t.Errorf("null in %s", body)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"process", "ready", "open_requests", "workers.known", "workers.reachable",
		"workers.vanished", "out_path.in_force", "models", "worker_list", "sockets", "stats.Lanes",
		"stats.RecordsIn", "config", "settings", "rates.window_s", "rates.records_in_per_s", "load.routing",
		"load.waiting", "load.streaming", "load.holders", "load.processes"} {
		var at any = got
		for key := range strings.SplitSeq(path, ".") {
			m, _ := at.(map[string]any)
			v, ok := m[key]
			if !ok {
				t.Errorf("no %s in %s", path, body)
				break
			}
			at = v
		}
	}
	p.signal()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}
