package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/netns"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Names of the nodes of a run in namespaces; a worker process's node is called as the process.
const (
	nodeFrontend = "frontend"
	nodeLoadgen  = "loadgen"
)

// checkNetns is what Validate says about --netns.
func (c Config) checkNetns() error {
	if !c.Netns {
		return nil
	}
	var errs []error
	if most := netns.MaxNodes - 2; c.Processes > most {
		errs = append(errs, fmt.Errorf("--netns with --processes %d: use at most %d, a bridge has no more ports",
			c.Processes, most))
	}
	if host, _, err := net.SplitHostPort(c.BindAddr); err == nil {
		if a, err := netip.ParseAddr(host); host != "" && (err != nil || !a.IsUnspecified()) {
			errs = append(errs,
				fmt.Errorf("--netns with --bind-addr %s: each namespace has an address of its own, so leave the host "+
					"out, or use [::] for IPv6", c.BindAddr))
		}
	}
	for _, e := range c.EtcdEndpoints {
		if _, _, err := target(e.Whole(), "http"); err != nil {
			errs = append(errs, fmt.Errorf("--netns with --etcd-endpoints %s: %w", e, err))
		}
	}
	if !c.NATSURL.Empty() {
		for e := range strings.SplitSeq(c.NATSURL.Whole(), ",") {
			if _, _, err := target(strings.TrimSpace(e), "nats"); err != nil {
				errs = append(errs, fmt.Errorf("--netns with --nats-url %s: %w", redact.Address(e), err))
			}
		}
	}
	return errors.Join(errs...)
}

// target splits a server's address into what to dial and a function that writes it with another host and port. It may
// be a URL of the scheme, or host:port. A server that proves its name would not be known by another one, so other
// schemes are refused.
func target(address, scheme string) (dial string, with func(string) string, err error) {
	if !strings.Contains(address, "://") {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", nil, errors.New("is not host:port")
		}
		return address, func(a string) string { return a }, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", nil, errors.New("is not a URL")
	}
	if u.Scheme != scheme {
		return "", nil,
			fmt.Errorf("only %s:// can be reached from the namespaces, where a server has another address than its "+
				"certificate", scheme)
	}
	if u.Port() == "" {
		return "", nil, errors.New("name the port too")
	}
	return u.Host, func(a string) string {
		v := *u
		v.Host = a
		return v.String()
	}, nil
}

// makeNetwork gives each process of the run a namespace. Without --netns it does nothing.
func (s *session) makeNetwork() (err error) {
	if !s.cfg.Netns {
		return nil
	}
	stale, err := netns.RemoveStale(s.ctx)
	if err != nil {
		return fmt.Errorf("--netns: %w", err)
	}
	if len(stale) > 0 {
		s.say("removed %d network namespaces that a run had left behind", len(stale))
	}
	nodes := []string{nodeFrontend, nodeLoadgen}
	for i := range s.cfg.Processes {
		nodes = append(nodes, workerName(i))
	}
	s.say("making %d network namespaces, MTU %d", len(nodes)+1, netns.DefaultMTU)
	if s.net, err = netns.Make(s.ctx, netns.Config{Nodes: nodes, MTU: netns.DefaultMTU,
		IPv6: s.cfg.ipv6()}); err != nil {
		return fmt.Errorf("--netns: %w", err)
	}
	return nil
}

// ipv6 tells whether the workers of a run in namespaces listen on IPv6.
func (c Config) ipv6() bool {
	host, _, err := net.SplitHostPort(c.BindAddr)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Is6()
}

// offer makes etcd and NATS, which are in the host's network, reachable from the namespaces.
func (s *session) offer() error {
	if s.net == nil {
		return nil
	}
	through := func(address, scheme string) (string, error) {
		dial, with, err := target(address, scheme)
		if err != nil {
			return "", err
		}
		f, err := s.net.Hub().Forward(s.ctx, dial, s.cfg.Log)
		if err != nil {
			return "", err
		}
		s.forwards = append(s.forwards, f)
		return with(f.Addr()), nil
	}
	etcd := make([]string, len(s.etcdURLs)) // the old slice may be the caller's
	for i, u := range s.etcdURLs {
		var err error
		if etcd[i], err = through(u, "http"); err != nil {
			return err
		}
	}
	s.etcdURLs = etcd
	var nats []string
	for u := range strings.SplitSeq(s.natsURL, ",") {
		v, err := through(strings.TrimSpace(u), "nats")
		if err != nil {
			return err
		}
		nats = append(nats, v)
	}
	s.natsURL = strings.Join(nats, ",")
	return nil
}

// node is the namespace of a process; nil without --netns.
func (s *session) node(name string) *netns.Node {
	if s.net == nil {
		return nil
	}
	return s.net.Node(name)
}

// address is where a process listens for HTTP.
func (s *session) address(name string) string {
	if d := s.node(name); d != nil {
		return net.JoinHostPort(d.Addr4.String(), "0")
	}
	return "127.0.0.1:0"
}

// workerBind is where worker process i listens for lanes.
func (s *session) workerBind(i int) (string, error) {
	d := s.node(workerName(i))
	if d == nil {
		return s.cfg.bindAddr(i)
	}
	_, port, err := net.SplitHostPort(s.cfg.BindAddr) // each namespace has all ports
	if err != nil {
		return "", fmt.Errorf("--bind-addr %s: %w", s.cfg.BindAddr, err)
	}
	a := d.Addr4
	if s.cfg.ipv6() {
		a = d.Addr6
	}
	return net.JoinHostPort(a.String(), port), nil
}

// httpClient reaches the processes of the run.
func (s *session) httpClient() *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 1}
	if s.net != nil {
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return s.net.Hub().Dial(ctx, network, addr)
		}
	}
	return &http.Client{Transport: t, Timeout: httpTimeout}
}

// closeNetwork ends what the namespaces needed and removes them.
func (s *session) closeNetwork() error {
	var errs []error
	for _, f := range s.forwards {
		errs = append(errs, f.Close())
	}
	if s.net != nil {
		errs = append(errs, s.net.Close())
	}
	return errors.Join(errs...)
}
