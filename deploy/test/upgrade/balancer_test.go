package upgrade

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// balancer gives each request to the next of its frontends, as a Service and its proxy do. A frontend is taken out
// before it is told to leave, which in Kubernetes the endpoint controller and preStop see to.
type balancer struct {
	server *httptest.Server

	mu       sync.Mutex
	backends []string
	next     int
	starting map[string]int // requests that were given to a backend and have no status line yet
}

// backendKey is where a request's context has its backend.
type backendKey struct{}

func newBalancer(t *testing.T) *balancer {
	b := &balancer{starting: make(map[string]int)}
	begun := func(ctx context.Context) { // the backend has taken the request
		b.mu.Lock()
		defer b.mu.Unlock()
		b.starting[ctx.Value(backendKey{}).(string)]--
	}
	proxy := &httputil.ReverseProxy{
		// A connection for each request: one that is kept might be closed by a leaving frontend just when it is used
		// again.
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext},
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: r.Out.Context().Value(backendKey{}).(string)})
		},
		ModifyResponse: func(r *http.Response) error { begun(r.Request.Context()); return nil },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			begun(r.Context())
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// All of the request first: once an answer begins, Go's server closes the body that the proxy may still be
		// about to see the end of, and the proxy then gives up its connection in the middle of the answer.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), backendKey{}, b.pick()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(b.server.Close)
	return b
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	addr := "127.0.0.1:1" // refused: no frontend is there
	if len(b.backends) > 0 {
		b.next++
		addr = b.backends[b.next%len(b.backends)]
	}
	b.starting[addr]++
	return addr
}

func (b *balancer) add(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, addr)
}

// remove takes a frontend out. When it returns, no request is on its way to it any more; those that it serves go on.
func (b *balancer) remove(t *testing.T, addr string) {
	t.Helper()
	b.mu.Lock()
	b.backends = slices.DeleteFunc(b.backends, func(x string) bool { return x == addr })
	b.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b.mu.Lock()
		n := b.starting[addr]
		b.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests are on their way to %s for a minute", n, addr)
		}
	}
}
