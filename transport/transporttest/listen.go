package transporttest

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/laneway-ai/laneway/transport"
)

func port(t *testing.T, a net.Addr) int {
	t.Helper()
	_, s, err := net.SplitHostPort(a.String())
	if err != nil {
		t.Fatalf("endpoint %v: %v", a, err)
	}
	p, err := strconv.Atoi(s)
	if err != nil || p == 0 {
		t.Fatalf("endpoint %v has no port", a)
	}
	return p
}

func testEndpoints(t *testing.T, f Factory) {
	r := newRig(t, f, 4)
	eps := r.ln.Endpoints()
	seen := make(map[int]bool)
	for _, a := range eps {
		seen[port(t, a)] = true
	}
	if len(eps) != 4 || len(seen) != 4 {
		t.Fatalf("4 endpoints asked for, got %v", eps)
	}
	for lane := range 8 {
		d, a := r.lane(t, lane)
		if want := eps[lane%4].String(); d.Info().Remote.String() != want || a.Info().Local.String() != want {
			t.Errorf("lane %d runs to %v and %v, want %s", lane, d.Info().Remote, a.Info().Local, want)
		}
	}
}

// fixed makes a listener with n endpoints on a range of fixed ports.
func fixed(t *testing.T, f Factory, tr transport.Transport, n int) (transport.Listener, string) {
	t.Helper()
	host, _, err := net.SplitHostPort(f.Bind)
	if err != nil {
		t.Fatalf("Factory.Bind: %v", err)
	}
	for range 50 {
		// Below the range from which the kernel takes ports for connections: thousands of those leave no three free
		// ones together.
		bind := net.JoinHostPort(host, strconv.Itoa(20000+rand.IntN(12000)))
		ln, err := tr.Listen(t.Context(), bind, n)
		var taken *transport.BindError
		switch {
		case err == nil:
			return ln, bind
		case !errors.As(err, &taken):
			t.Fatalf("listen at %s: %v", bind, err)
		}
		// Some other program has a port of the range: try another one.
	}
	t.Fatalf("no range of %d free ports in 50 tries", n)
	return nil, ""
}

func testFixedPorts(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	ln, bind := fixed(t, f, tr, 3)
	host, p, _ := net.SplitHostPort(bind)
	first, _ := strconv.Atoi(p)
	for i, a := range ln.Endpoints() {
		if want := net.JoinHostPort(host, strconv.Itoa(first+i)); a.String() != want {
			t.Errorf("endpoint %d is %v, want %s", i, a, want)
		}
	}
}

func testPortInUse(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	ln, bind := fixed(t, f, tr, 3)
	taken := ln.Endpoints()[0].String()
	for index := range 2 {
		host, p, _ := net.SplitHostPort(bind)
		first, _ := strconv.Atoi(p)
		from := net.JoinHostPort(host, strconv.Itoa(first-index))
		_, err := tr.Listen(t.Context(), from, 3)
		var bad *transport.BindError
		if !errors.As(err, &bad) {
			t.Fatalf("listen at %s: %v, want a *BindError", from, err)
		}
		if bad.Index < index && bad.Address != taken {
			continue // the port before is some other program's
		}
		if bad.Address != taken || bad.Index != index || bad.Count != 3 || bad.Plane != f.Plane || bad.Err == nil {
			t.Errorf("the error says %+v, want endpoint %d at %s", bad, index, taken)
		}
	}
	eps := 0
	for _, s := range tr.Sockets() {
		if s.Role == transport.RoleEndpoint {
			eps++
		}
	}
	if eps != 3 {
		t.Errorf("a failed Listen left endpoints: %+v", tr.Sockets())
	}
}

func testBadBind(t *testing.T, f Factory) {
	tr, _ := node(t, f)
	for _, c := range []struct {
		bind string
		n    int
	}{{"nohost", 1}, {"127.0.0.1:70000", 1}, {"127.0.0.1:65535", 2}, {f.Bind, 0}, {f.Bind, 65}, {"127.0.0.1:x", 1}} {
		if ln, err := tr.Listen(t.Context(), c.bind, c.n); err == nil {
			ln.Close()
			t.Errorf("listen at %q with %d endpoints went through", c.bind, c.n)
		}
	}
}

func testRebind(t *testing.T, f Factory) {
	r := &rig{}
	r.dialer, r.dialerID = node(t, f)
	r.acceptor, r.acceptorID = node(t, f)
	ln, bind := fixed(t, f, r.acceptor, 1)
	r.ln = ln
	d, _ := r.lane(t, 0)
	ln.Close()
	d.Close()
	again, err := r.acceptor.Listen(t.Context(), bind, 1)
	if err != nil {
		t.Fatalf("listen at %s again: %v", bind, err)
	}
	r.ln = again
	d, a := r.lane(t, 0)
	if _, err := a.Write([]byte("again")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(d, buf); err != nil || string(buf) != "again" {
		t.Errorf("read %q, %v", buf, err)
	}
}
