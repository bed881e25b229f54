package upgrade

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"
)

// balancer gives each request to the next of its frontends, as a Service and its proxy do. A frontend is taken out before it is told to leave,
// which in Kubernetes the endpoint controller and preStop see to.
type balancer struct {
	mu       sync.Mutex
	backends []string
	next     int
	server   *httptest.Server
}

func newBalancer(t *testing.T) *balancer {
	b := &balancer{}
	// A connection for each request: one that is kept might be closed by a leaving frontend just when it is used again.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: b.pick()})
		},
		FlushInterval: -1,
	}
	b.server = httptest.NewServer(proxy)
	t.Cleanup(b.server.Close)
	return b
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.backends) == 0 {
		return "127.0.0.1:1" // refused: no frontend is there
	}
	b.next++
	return b.backends[b.next%len(b.backends)]
}

func (b *balancer) add(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = append(b.backends, addr)
}

func (b *balancer) remove(addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = slices.DeleteFunc(b.backends, func(x string) bool { return x == addr })
}
