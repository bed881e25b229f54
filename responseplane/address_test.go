package responseplane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// secure makes a TLS and a QUIC transport of one node.
func secure(t *testing.T, id *transport.Identity) []transport.Transport {
	t.Helper()
	a, err := tcp.New(tcp.Config{Identity: id, TLS: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := quic.New(quic.Config{Identity: id, RecvBuffer: 256 << 10, SendBuffer: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, a, b) })
	return []transport.Transport{a, b}
}

// listening starts a worker that listens as cfg says; its error is Listen's.
func listening(t *testing.T, cfg responseplane.WorkerConfig) (*responseplane.Worker, error) {
	t.Helper()
	cfg.Identity = identity(t)
	if cfg.Transports == nil {
		cfg.Transports = secure(t, cfg.Identity)
	}
	w, err := responseplane.NewWorker(cfg)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { closeAll(t, w) })
	return w, w.Listen(t.Context())
}

// dialling is a frontend over the given transports, or over TLS.
func dialling(t *testing.T, cfg responseplane.FrontendConfig) *responseplane.Frontend {
	t.Helper()
	cfg.Identity = identity(t)
	if cfg.Transports == nil {
		cfg.Transports = secure(t, cfg.Identity)
	}
	f, err := responseplane.NewFrontend(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, f) })
	return f
}

// exchangeOne takes one response through.
func exchangeOne(t *testing.T, f *responseplane.Frontend, w *responseplane.Worker) {
	t.Helper()
	id, err := transport.ParseNodeID(w.Descriptor().ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.AwaitPeer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	res, err := f.Mint(t.Context(), id, responseplane.MintOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	out, err := w.Attach(res.Terms())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(out.Send(t.Context(), []byte("token")), out.Complete(nil)); err != nil {
		t.Fatal(err)
	}
	if rec, err := res.Next(t.Context()); err != nil || string(rec) != "token" {
		t.Fatalf("%q, %v", rec, err)
	}
}

func hasIPv6(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	_ = l.Close()
}

// A worker does not start with an address that nobody can reach.
func TestWorkerRefusesToAdvertise(t *testing.T) {
	for advertise, reason := range map[string]string{
		"0.0.0.0": "unspecified", "::": "unspecified", "169.254.1.1": "link-local", "fe80::1": "link-local",
		"fe80::1%lo": "link-local",
		"224.0.0.1":  "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved",
	} {
		_, err := listening(t, responseplane.WorkerConfig{BindAddr: "127.0.0.1:0", AdvertiseAddr: advertise})
		var bad *transport.AddressError
		if !errors.As(err, &bad) || bad.Reason != reason || bad.Address != advertise {
			t.Errorf("%s: %v, expected %s", advertise, err, reason)
		}
	}
	if _, err := listening(t, responseplane.WorkerConfig{AdvertiseAddr: "10.0.0.1:7000"}); err == nil ||
		!strings.Contains(err.Error(), "has a port") {
		t.Errorf("an advertised port: %v", err)
	}
	// What is found by binding is looked at, too; a memory network has any host that a test likes.
	n := memory.NewNetwork(memory.Config{})
	tr := n.Transport(transport.NodeID{1})
	_, err := listening(t, responseplane.WorkerConfig{BindAddr: "169.254.1.1:7000", ServerEndpoints: 1,
		Transports: []transport.Transport{tr}})
	var bad *transport.AddressError
	if !errors.As(err, &bad) || bad.Address != "169.254.1.1:7000" {
		t.Errorf("a bound link-local address: %v", err)
	}
	if s := tr.Sockets(); len(s) != 0 {
		t.Errorf("a refused Listen left %+v", s)
	}
	_ = tr.Close()
}

// Hosts that are IPv6 literals, and hosts that are advertised apart from what is bound.
func TestBindAndAdvertise(t *testing.T) {
	for _, c := range []struct {
		bind, advertise, host string
		six                   bool
	}{
		{"[::1]:0", "", "::1", true}, {"[::1]:0", "[::1]", "::1", true}, {"[::]:0", "::1", "::1", true},
		{"[::]:0", "127.0.0.1", "127.0.0.1", true},
		{"0.0.0.0:0", "localhost", "localhost", false}, {":0", "127.0.0.1", "127.0.0.1", false},
		{"127.0.0.1:0", "", "127.0.0.1", false},
	} {
		t.Run(c.bind+" "+c.advertise, func(t *testing.T) {
			if c.six {
				hasIPv6(t)
			}
			w, err := listening(t, responseplane.WorkerConfig{BindAddr: c.bind, AdvertiseAddr: c.advertise,
				ServerEndpoints: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range w.Descriptor().Planes {
				for _, e := range p.Endpoints {
					if host, port, err := net.SplitHostPort(e); err != nil || host != c.host || port == "0" {
						t.Errorf("plane %s advertises %s", p.Name, e)
					}
				}
			}
			for i := range 2 { // TLS first, then QUIC first
				f := dialling(t, responseplane.FrontendConfig{Lanes: 2})
				d := w.Descriptor()
				d.Planes = d.Planes[i : i+1]
				if _, err := f.AddPeer(d); err != nil {
					t.Fatal(err)
				}
				exchangeOne(t, f, w)
			}
		})
	}
}

// freeRange finds a port P with P..P+n-1 free for TCP and UDP on the loopback address.
func freeRange(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		first := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if first+n > 65535 {
			continue
		}
		ok := true
		for p := first; p < first+n && ok; p++ {
			a := net.JoinHostPort("127.0.0.1", strconv.Itoa(p))
			l, err := net.Listen("tcp", a)
			if err != nil {
				ok = false
				break
			}
			_ = l.Close()
			u, err := net.ListenPacket("udp", a)
			if err != nil {
				ok = false
				break
			}
			_ = u.Close()
		}
		if ok {
			return first
		}
	}
	t.Skip("no free range of ports")
	return 0
}

// A fixed port binds a range on each plane, and when one port of it is taken the error says which.
func TestFixedPorts(t *testing.T) {
	first := freeRange(t, 4)
	bind := net.JoinHostPort("127.0.0.1", strconv.Itoa(first))
	w, err := listening(t, responseplane.WorkerConfig{BindAddr: bind})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range w.Descriptor().Planes {
		for i, e := range p.Endpoints {
			if want := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i)); e != want {
				t.Errorf("plane %s: endpoint %d is %s, expected %s", p.Name, i, e, want)
			}
		}
		if len(p.Endpoints) != 4 {
			t.Errorf("plane %s has %v", p.Name, p.Endpoints)
		}
	}
	_ = w.Close()
	for index, network := range map[int]string{2: "udp", 1: "tcp"} {
		taken := net.JoinHostPort("127.0.0.1", strconv.Itoa(first+index))
		var hold interface{ Close() error }
		plane := transport.PlaneTLS
		if network == "udp" {
			plane = transport.PlaneQUIC
			hold, err = net.ListenPacket(network, taken)
		} else {
			hold, err = net.Listen(network, taken)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err := listening(t, responseplane.WorkerConfig{BindAddr: bind})
		var bad *transport.BindError
		if !errors.As(err, &bad) || bad.Address != taken || bad.Index != index || bad.Count != 4 ||
			bad.Plane != plane || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s is taken: %v", taken, err)
		} else if text := err.Error(); !strings.Contains(text, fmt.Sprintf("%s endpoint %d of 4 at %s", plane, index+1,
			taken)) {
			t.Errorf("the error says: %s", text)
		}
		_ = hold.Close()
	}
}

// An older version knows the first port of a node only, as a record's writer or as its reader. Every lane of a link
// comes up at that one endpoint, and a node's record without what was added later is read as ever.
func TestRecordWithTheFirstPortOnly(t *testing.T) {
	w, err := listening(t, responseplane.WorkerConfig{BindAddr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	const lanes = 4
	for i := range 2 {
		d := w.Descriptor()
		plane := d.Planes[i].Name
		data, err := json.Marshal(map[string]any{"schema": discovery.Schema, "id": "w", "models": []string{model},
			"node": map[string]any{
				"id": d.ID, "wire_min": 1, "wire_max": 1,
				"planes": []any{map[string]any{"name": plane, "endpoints": d.Planes[i].Endpoints[:1]}},
			}})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := discovery.DecodeWorker("w", data)
		if err != nil {
			t.Fatal(err)
		}
		f := dialling(t, responseplane.FrontendConfig{Lanes: lanes})
		if _, err := f.AddPeer(rec.Node); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all lanes", func() bool {
			n := 0
			for _, l := range f.Stats().Lanes {
				if l.Up {
					n++
				}
			}
			return n == lanes
		})
		for _, l := range f.Stats().Lanes {
			if l.Plane != plane || l.Remote != d.Planes[i].Endpoints[0] {
				t.Errorf("a lane runs to %s %s", l.Plane, l.Remote)
			}
		}
		exchangeOne(t, f, w)
		_ = f.Close()
	}
}

// What a frontend cannot dial stands in one place, and nothing is routed there.
func TestFrontendRefusesAddresses(t *testing.T) {
	n := memory.NewNetwork(memory.Config{})
	tr := n.Transport(transport.NodeID{1})
	t.Cleanup(func() { _ = tr.Close() })
	f := dialling(t, responseplane.FrontendConfig{Transports: []transport.Transport{tr}})
	node := func(i int, network string, endpoints ...string) responseplane.Descriptor {
		return responseplane.Descriptor{ID: transport.NodeID{9, byte(i)}.String(), Name: fmt.Sprint("node-", i),
			WireMin: 1, WireMax: 1, Network: network,
			Planes: []discovery.Plane{{Name: transport.PlaneMemory, Endpoints: endpoints}}}
	}
	for i, c := range []struct {
		d      responseplane.Descriptor
		reason string
	}{
		{node(0, "", "169.254.0.1:7000", "169.254.0.1:7001"), transport.AddressLinkLocal},
		{node(1, "", "[fe80::1]:7000"), transport.AddressLinkLocal},
		{node(2, "", "224.0.0.1:7000"), transport.AddressMulticast}, {node(3, "another-stack", "127.0.0.1:7000"),
			transport.AddressLoopback},
		{node(4, "another-stack", "[::1]:7000"), transport.AddressLoopback}, {node(5, "", "255.255.255.255:1"),
			transport.AddressReserved},
	} {
		_, err := f.AddPeer(c.d)
		var none *mux.NoAddressError
		var bad *transport.AddressError
		if !errors.As(err, &none) || !errors.As(err, &bad) || bad.Reason != c.reason || !strings.Contains(err.Error(),
			c.d.Planes[0].Endpoints[0]) {
			t.Errorf("%d: %v, expected %s", i, err, c.reason)
			continue
		}
		if len(none.Refused) != len(c.d.Planes[0].Endpoints) {
			t.Errorf("%d: %d addresses are refused", i, len(none.Refused))
		}
	}
	want := map[string]uint64{transport.AddressLinkLocal: 3, transport.AddressMulticast: 1,
		transport.AddressLoopback: 2, transport.AddressReserved: 1}
	if got := f.Stats().AddressesRefused; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("refused: %v, expected %v", got, want)
	}
	if peers := f.Peers(); len(peers) != 6 {
		t.Errorf("%d peers are shown", len(peers))
	} else if i := slices.IndexFunc(peers,
		func(p responseplane.PeerStatus) bool { return p.Up || p.Err == nil }); i >= 0 {
		t.Errorf("peer %+v", peers[i])
	}
	if c := tr.Counters(); c.Dials+c.DialErrors != 0 {
		t.Errorf("dialled: %+v", c)
	}

	// One address of several is enough, and a better record makes a node usable.
	work := n.Transport(transport.NodeID{9, 0})
	w, err := listening(t, responseplane.WorkerConfig{BindAddr: "worker:0", ServerEndpoints: 1,
		Transports: []transport.Transport{work}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = work.Close() })
	d := w.Descriptor()
	d.Planes[0].Endpoints = append([]string{"169.254.0.1:7000"}, d.Planes[0].Endpoints...)
	if _, err := f.AddPeer(d); err != nil {
		t.Fatal(err)
	}
	exchangeOne(t, f, w)
	if got := f.Stats().AddressesRefused[transport.AddressLinkLocal]; got != 4 {
		t.Errorf("%d link-local addresses are refused, expected 4", got)
	}
	for i := range 6 {
		f.RemovePeer(transport.NodeID{9, byte(i)})
	}
	id, _ := transport.ParseNodeID(d.ID)
	f.RemovePeer(id)
	if st := f.Stats(); len(st.AddressesRefused) != 0 || len(f.Peers()) != 0 {
		t.Errorf("after removal: %v, %v", st.AddressesRefused, f.Peers())
	}
}

// A worker of a registry whose address is refused is known, says why, and gets no request.
func TestRefusedAddressInTheRegistry(t *testing.T) {
	r := newRig(t, planes()[transport.PlaneMemory](), rigConfig{})
	reg, err := r.hub.Registry("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, reg) })
	bad := r.procs[0].record()
	bad.ID, bad.Node.ID = "bad", transport.NodeID{8}.String()
	bad.Node.Planes = []discovery.Plane{{Name: transport.PlaneMemory, Endpoints: []string{"169.254.7.7:7000"}}}
	if _, err := reg.Register(t.Context(), []discovery.Worker{bad}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad worker", func() bool { known, _ := r.front.Counts(); return known == 2 })
	st, ok := r.status("bad")
	if !ok || st.Reachable || !strings.Contains(st.Err, "169.254.7.7:7000 is link-local") {
		t.Errorf("status %+v", st)
	}
	for range 20 {
		if worker, retries := r.openOK(t, responseplane.Request{}); worker != "w0" || retries != 0 {
			t.Errorf("served by %s after %d retries", worker, retries)
		}
	}
}
