package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	natsio "github.com/nats-io/nats.go"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/internal/program/redact"
	"github.com/laneway-ai/laneway/internal/program/seldom"
)

// Defaults of Config.
const (
	DefaultNamespace   = "default"
	DefaultDialTimeout = 5 * time.Second
	DefaultQueue       = 256
)

// Config says which NATS, and how. The zero value of a field means its default.
type Config struct {
	// URL is where the servers are: nats://host:port, tls://host:port, several with commas between. Required.
	URL string
	// Namespace keeps clusters apart that share a NATS: 1 to 128 letters, digits, '-' or '_'. Default: "default".
	Namespace string
	// Name is this process for people: the connection's name at the server and in the service's metadata. Default:
	// none.
	Name string
	// User and Password go together. Default: what the URL says.
	User, Password string
	// Credentials is a .creds file (a JWT and its nkey). Default: none.
	Credentials string
	// NKeySeed is a file with an nkey's seed. Default: none. At most one of User, Credentials and NKeySeed.
	NKeySeed string
	// TLS is the client's configuration. Default: the system's, when the URL or the server asks for TLS.
	TLS *tls.Config
	// DialTimeout bounds connecting to one server, 100 ms to 1 min. Default: 5 s.
	DialTimeout time.Duration
	// Queue is how many requests may wait for one worker's handler, 1 to 65,536. Default: 256.
	Queue int
	// Logger gets what goes wrong and what is mended. Default: nothing is logged.
	Logger *slog.Logger
}

// Validate reports all that does not hold.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("nats: "+format, a...)) }
	if strings.TrimSpace(c.URL) == "" {
		bad("no server is given (Config.URL)")
	} else if err := checkURL(c.URL); err != nil {
		bad("%s: %w (Config.URL)", redact.Address(c.URL), err)
	}
	if !discovery.ValidName(c.Namespace) {
		bad("namespace %q is not 1 to 128 letters, digits, '-' or '_'", c.Namespace)
	}
	if (c.User == "") != (c.Password == "") {
		bad("user name and password go together")
	}
	ways := 0
	for _, s := range []string{c.User, c.Credentials, c.NKeySeed} {
		if s != "" {
			ways++
		}
	}
	if ways > 1 {
		bad("user name, credentials file and nkey seed file exclude each other")
	}
	if c.DialTimeout < 100*time.Millisecond || c.DialTimeout > time.Minute {
		bad("dial timeout %s is not 100ms to 1m", c.DialTimeout)
	}
	if c.Queue < 1 || c.Queue > 65536 {
		bad("queue of %d requests is not 1 to 65536", c.Queue)
	}
	return errors.Join(errs...)
}

// checkURL finds what the client would not parse; its own error holds the password.
func checkURL(list string) error {
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s // as the client does it
		}
		if u, err := url.Parse(s); err != nil || u.Host == "" {
			return errors.New("is not a NATS URL: write it like nats://127.0.0.1:4222, and what is special in a " +
				"password as %40")
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	c.Logger = seldom.Logger(c.Logger)
	return c
}

// options are the connection's, all but its callbacks.
func (c Config) options() ([]natsio.Option, error) {
	opts := []natsio.Option{
		natsio.Timeout(c.DialTimeout),
		natsio.ReconnectBufSize(-1), // nothing is kept for later
		natsio.MaxReconnects(-1),
		natsio.ReconnectWait(200 * time.Millisecond),
		natsio.ReconnectJitter(200*time.Millisecond, 200*time.Millisecond),
		natsio.IgnoreAuthErrorAbort(), // a server whose users are being changed must not end the connection for good
		natsio.PingInterval(5 * time.Second),
		natsio.MaxPingsOutstanding(2),
	}
	if c.Name != "" {
		opts = append(opts, natsio.Name(c.Name))
	}
	if c.User != "" {
		opts = append(opts, natsio.UserInfo(c.User, c.Password))
	}
	if c.Credentials != "" {
		opts = append(opts, natsio.UserCredentials(c.Credentials))
	}
	if c.NKeySeed != "" {
		o, err := natsio.NkeyOptionFromSeed(c.NKeySeed)
		if err != nil {
			return nil, fmt.Errorf("nats: nkey seed file %s: %w", c.NKeySeed, err)
		}
		opts = append(opts, o)
	}
	if c.TLS != nil {
		opts = append(opts, natsio.Secure(c.TLS))
	}
	return opts, nil
}
