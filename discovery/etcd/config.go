package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/internal/program/seldom"
)

// Defaults of Config.
const (
	DefaultNamespace   = "default"
	DefaultLeaseTTL    = 10 * time.Second
	DefaultDialTimeout = 5 * time.Second
)

// Config says which etcd, and how. The zero value of a field means its default.
type Config struct {
	// Endpoints are the members' client addresses, host:port or URLs. At least one.
	Endpoints []string
	// Namespace keeps clusters apart that share an etcd: 1 to 128 letters, digits, '-' or '_'. Default: "default".
	Namespace string
	// Username and Password go together. Default: no authentication.
	Username, Password string
	// TLS is the client's configuration; the registry does not change it. Default: plain connections.
	TLS *tls.Config
	// LeaseTTL is how long the records of a process that died stay, in whole seconds, 1 s to 1 h. Default: 10 s. An
	// etcd may grant more than it is asked for.
	LeaseTTL time.Duration
	// DialTimeout bounds New, and each single request to etcd. 100 ms to 1 min. Default: 5 s.
	DialTimeout time.Duration
	// Logger gets what goes wrong and what is mended. Default: nothing is logged.
	Logger *slog.Logger
}

// CheckEndpoint says whether s can be a member's client address. The client itself takes anything, and then never
// reaches it.
func CheckEndpoint(s string) error {
	addr := s
	if strings.HasPrefix(s, "unix:") || strings.HasPrefix(s, "unixs:") {
		return nil
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		if scheme != "http" && scheme != "https" {
			return fmt.Errorf("has the scheme %q: use http:// or https://", redact.Address(scheme))
		}
		addr = strings.TrimSuffix(rest, "/")
	}
	if strings.Contains(addr, "@") { // the client would look up a host of that name
		return errors.New("holds a user: leave it out, and give the user name and the password by themselves")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" || strings.ContainsAny(addr, "/?#") {
		return errors.New("is not an address of etcd: write it like 127.0.0.1:2379 or http://127.0.0.1:2379")
	}
	return nil
}

// shown is a list of endpoints as errors may show it.
func shown(endpoints []string) string { return redact.Address(strings.Join(endpoints, ", ")) }

// Validate reports all that does not hold.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("etcd: "+format, a...)) }
	if len(c.Endpoints) == 0 {
		bad("no endpoint is given (Config.Endpoints)")
	}
	for _, e := range c.Endpoints {
		if strings.TrimSpace(e) == "" {
			bad("an endpoint is empty (Config.Endpoints %s)", shown(c.Endpoints))
		} else if err := CheckEndpoint(e); err != nil {
			bad("endpoint %s %w (Config.Endpoints)", redact.Address(e), err)
		}
	}
	if !discovery.ValidName(c.Namespace) {
		bad("namespace %q is not 1 to 128 letters, digits, '-' or '_'", c.Namespace)
	}
	if (c.Username == "") != (c.Password == "") {
		bad("user name and password go together")
	}
	if c.LeaseTTL < time.Second || c.LeaseTTL > time.Hour || c.LeaseTTL%time.Second != 0 {
		bad("lease TTL %s is not a whole number of seconds from 1s to 1h", c.LeaseTTL)
	}
	if c.DialTimeout < 100*time.Millisecond || c.DialTimeout > time.Minute {
		bad("dial timeout %s is not 100ms to 1m", c.DialTimeout)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	c.Logger = seldom.Logger(c.Logger)
	return c
}
