// Package browser drives a headless Chromium in the DevTools protocol, and holds what pages are checked for.
package browser

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

// Browser is a headless Chromium that is spoken to over two pipes, in the DevTools protocol: JSON with a NUL after each
// message.
type Browser struct {
	T       *testing.T // the test that is under way
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

// Open starts the browser with an empty page; it ends with the test.
func Open(t *testing.T) *Browser {
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
	cmd := exec.CommandContext(ctx, path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+
			filepath.Join(t.TempDir(), "profile"), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &Browser{T: t, w: w, waiting: map[int]chan message{}, said: make(chan message, 1024)}
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
	b.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &made)
	var attached struct{ SessionID string }
	b.Call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.Call(domain+".enable", nil, nil)
	}
	return b
}

func (b *Browser) read(r io.Reader) {
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

// Call sends a command and decodes its result into out, which may be nil.
func (b *Browser) Call(method string, params any, out any) {
	b.T.Helper()
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
		b.T.Fatal(err)
	}
	if _, err := b.w.Write(append(raw, 0)); err != nil {
		b.T.Fatalf("%s: the browser is gone: %v", method, err)
	}
	select {
	case m, ok := <-c:
		if !ok {
			b.T.Fatalf("%s: %v", method, errors.New("the browser ended"))
		}
		if m.Error != nil {
			b.T.Fatalf("%s: %s", method, m.Error.Message)
		}
		if out != nil {
			if err := json.Unmarshal(m.Result, out); err != nil {
				b.T.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(time.Minute):
		b.T.Fatalf("%s: no answer within a minute", method)
	}
}

// Show opens an address in a window of this width, in the light or the dark scheme.
func (b *Browser) Show(url, scheme string, width int) {
	b.T.Helper()
	b.Call("Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	b.Loads(func() { b.Call("Page.navigate", map[string]any{"url": url}, nil) })
}

// Loads waits until what do has started is loaded.
func (b *Browser) Loads(do func()) {
	b.T.Helper()
	do()
	select {
	case <-b.said:
	case <-time.After(time.Minute):
		b.T.Fatal("no page was loaded within a minute")
	}
}

// Eval computes a JavaScript expression (the debugger may, the page may not) and decodes its value into out, which may
// be nil.
func (b *Browser) Eval(expression string, out any) {
	b.T.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Text string }
	}
	b.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.T.Fatalf("%s: %s\n%s", expression, r.ExceptionDetails.Text, r.Result.Value)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(r.Result.Value, out); err != nil {
		b.T.Fatalf("%s: %v", expression, err)
	}
}

// Picture takes the whole page as a PNG. With LANEWAY_SCREENSHOTS set to a folder it is kept there, to be looked at.
func (b *Browser) Picture(name string) []byte {
	b.T.Helper()
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	b.Call("Page.getLayoutMetrics", nil, &size)
	var shot struct{ Data string }
	b.Call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true,
		"clip": map[string]any{"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": size.CSSContentSize.Height,
			"scale": 1}}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.T.Fatal(err)
	}
	if dir := os.Getenv("LANEWAY_SCREENSHOTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), raw, 0o644); err != nil {
			b.T.Error(err)
		}
	}
	return raw
}

// Quiet fails for every message on the console and for everything that the page asked for besides itself.
func (b *Browser) Quiet(url string) {
	b.T.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.T.Errorf("console: %s", c)
	}
	for _, a := range b.asked {
		if a != url && !strings.HasPrefix(a, "data:") && a != "about:blank" {
			b.T.Errorf("the page asked for %s", a)
		}
	}
	if len(b.asked) == 0 {
		b.T.Error("no request was seen, not even the page's own: the check sees nothing")
	}
	b.complaints, b.asked = nil, nil
}
