package frontend

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// buffering passes answers on as nginx does by default: in pieces of 8 KiB or at the end, unless the answer asks not to
// be held.
func buffering(t *testing.T, to string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := http.NewRequestWithContext(r.Context(), r.Method, to+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		if resp.Header.Get("X-Accel-Buffering") != "no" {
			held := bufio.NewWriterSize(w, 8<<10)
			_, _ = io.Copy(held, resp.Body)
			_ = held.Flush()
			return
		}
		rc, p := http.NewResponseController(w), make([]byte, 4<<10)
		for {
			n, err := resp.Body.Read(p)
			_, _ = w.Write(p[:n])
			_ = rc.Flush()
			if err != nil {
				return
			}
		}
	})
}

// TestThroughProxies holds that proxies that buffer by default pass each token on before the next one is made: one that
// goes by the header X-Accel-Buffering, as nginx does, and Go's, which goes by the content's type.
func TestThroughProxies(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for name, proxy := range map[string]func(to string) http.Handler{
		"by header": func(to string) http.Handler { return buffering(t, to) },
		"by type": func(to string) http.Handler {
			u, err := url.Parse(to)
			if err != nil {
				t.Fatal(err)
			}
			return httputil.NewSingleHostReverseProxy(u)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(step{recs: []string{"first"}})
			b := serve(t, playing(p), nil)
			front := httptest.NewServer(proxy(b.url))
			defer front.Close()
			resp, err := b.client.Post(front.URL+"/v1/chat/completions", "application/json",
				strings.NewReader(chatStream))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.Header.Get("X-Accel-Buffering") != "no" || resp.Header.Get("Cache-Control") != "no-cache" {
				t.Errorf("%v", resp.Header)
			}
			r := bufio.NewReader(resp.Body)
			until := func(want string) {
				t.Helper()
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(line, want) {
						return
					}
				}
			}
			until(`"first"`) // nothing more has been played
			p.steps <- step{recs: []string{"second"}}
			until(`"second"`)
			p.steps <- step{err: io.EOF}
			until("[DONE]")
		})
	}
}
