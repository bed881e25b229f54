package report

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// findBrowser returns the path of a Chromium. Without one the test skips with the reason; with CI=true it fails.
func findBrowser(t *testing.T) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p
		}
	}
	why := "none of " + strings.Join(names, ", ") + " is installed (Debian: apt-get install chromium)"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// browser is a headless Chromium that is spoken to over two pipes, in the DevTools protocol: JSON with a NUL after each message.
type browser struct {
	t       *testing.T
	w       io.WriteCloser
	session string
	said    chan message

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	// complaints are console messages, log entries and exceptions; asked are the addresses that the page wanted.
	complaints, asked []string
}

type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// open starts the browser with an empty page; it ends with the test.
func open(t *testing.T) *browser {
	t.Helper()
	path := findBrowser(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	theirIn, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// --no-sandbox: tests run as root in containers, and the page is our own.
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &browser{t: t, w: w, waiting: map[int]chan message{}, said: make(chan message, 1024)}
	var reader sync.WaitGroup
	reader.Go(func() { b.read(r) }) // ends when the browser has
	t.Cleanup(func() {
		_ = w.Close() // the browser ends with its pipe
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }() // joined below
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			cancel()
			<-done
		}
		cancel()
		reader.Wait()
		_ = r.Close()
	})
	var made struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(r io.Reader) {
	br := bufio.NewReader(r)
	for {
		raw, err := br.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[m.ID]; m.ID != 0 && c != nil {
			delete(b.waiting, m.ID)
			b.mu.Unlock()
			c <- m
			continue
		}
		switch m.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			b.complaints = append(b.complaints, m.Method+" "+string(m.Params))
		case "Network.requestWillBeSent":
			var p struct{ Request struct{ URL string } }
			if json.Unmarshal(m.Params, &p) == nil {
				b.asked = append(b.asked, p.Request.URL)
			}
		}
		b.mu.Unlock()
		if m.Method == "Page.loadEventFired" {
			b.said <- m
		}
	}
}

// call sends a command and decodes its result into out, which may be nil.
func (b *browser) call(method string, params any, out any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id := b.next
	c := make(chan message, 1)
	b.waiting[id] = c
	b.mu.Unlock()
	req := map[string]any{"id": id, "method": method}
	if params != nil {
		req["params"] = params
	}
	if b.session != "" {
		req["sessionId"] = b.session
	}
	raw, err := json.Marshal(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.w.Write(append(raw, 0)); err != nil {
		b.t.Fatalf("%s: the browser is gone: %v", method, err)
	}
	select {
	case m, ok := <-c:
		if !ok {
			b.t.Fatalf("%s: %v", method, errors.New("the browser ended"))
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if out != nil {
			if err := json.Unmarshal(m.Result, out); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(time.Minute):
		b.t.Fatalf("%s: no answer within a minute", method)
	}
}

// show opens a file in a window of this width, in the light or the dark scheme.
func (b *browser) show(path, scheme string, width int) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Page.navigate", map[string]any{"url": "file://" + path}, nil)
	select {
	case <-b.said:
	case <-time.After(time.Minute):
		b.t.Fatalf("%s was not loaded within a minute", path)
	}
}

// eval computes a JavaScript expression (the debugger may, the page may not) and decodes its value into out.
func (b *browser) eval(expression string, out any) {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s\n%s", expression, r.ExceptionDetails.Text, r.Result.Value)
	}
	if err := json.Unmarshal(r.Result.Value, out); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
}

// picture takes the whole page as a PNG. With LANEWAY_SCREENSHOTS set to a folder it is kept there, to be looked at.
func (b *browser) picture(name string) []byte {
	b.t.Helper()
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	b.call("Page.getLayoutMetrics", nil, &size)
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": size.CSSContentSize.Height, "scale": 1}}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if dir := os.Getenv("LANEWAY_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), raw, 0o644); err != nil {
			b.t.Error(err)
		}
	}
	return raw
}

// quiet fails for every message on the console and for everything that the page asked for besides itself.
func (b *browser) quiet(path string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("console: %s", c)
	}
	for _, a := range b.asked {
		if a != "file://"+path && !strings.HasPrefix(a, "data:") && a != "about:blank" {
			b.t.Errorf("the page asked for %s", a)
		}
	}
	if len(b.asked) == 0 {
		b.t.Error("no request was seen, not even the page's own: the check sees nothing")
	}
	b.complaints, b.asked = nil, nil
}
