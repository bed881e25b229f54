// Package etcd is a discovery.Registry on etcd.
//
// A worker's record stands at /laneway/v1/<namespace>/workers/<worker id>, as JSON. Each Register makes one lease, and
// all records of the call hang on it: when the process dies, they go after the lease's TTL. A lease that is lost while
// the process lives is granted again and its records are put back.
//
// # Who holds a worker id
//
// The first one. A record is replaced by another node's only when nobody keeps it alive (it has no lease), when it does
// not parse, or when its node has the same non-empty name: that is an earlier life of the same process. Otherwise
// Register waits for the holder's lease to run out, as it does when the holder died, and returns a *ConflictError when
// the holder is still there after that. A registration whose record was replaced by a later life says so with a
// *ConflictError from Err and does not fight for it; it puts the record back once the other one has gone.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/laneway-ai/laneway/discovery"
)

var _ discovery.Registry = (*Registry)(nil)

const (
	// The client's connection is tried again at least this often, so that a cluster is whole again soon after etcd is.
	reconnectMax = time.Second
	// How a connection that went silent is found; etcd refuses pings that come more often than every 5 s.
	pingEvery, pingTimeout = 10 * time.Second, 5 * time.Second
	// closeLimit bounds taking out the records when the registry is closed.
	closeLimit = 2 * time.Second
)

// Registry is a discovery.Registry on etcd. Make it with New. Methods may be called concurrently.
type Registry struct {
	cfg    Config
	cli    *clientv3.Client
	prefix string // of all keys, ends in '/'

	life  context.Context // ends when Close begins
	end   context.CancelFunc
	conn  context.Context // the client's; outlives life, so that Close can revoke
	abort context.CancelFunc

	mu     sync.Mutex
	closed bool
	regs   map[*registration]struct{}
	wg     sync.WaitGroup // watches
	done   chan struct{}  // closed when Close is through
}

// New connects to etcd and returns once it has answered. An etcd that does not within DialTimeout is an
// *UnreachableError. ctx bounds New only.
func New(ctx context.Context, cfg Config) (*Registry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r := &Registry{
		cfg: cfg, prefix: "/laneway/v1/" + cfg.Namespace + "/workers/",
		regs: make(map[*registration]struct{}), done: make(chan struct{}),
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.conn, r.abort = context.WithCancel(context.Background())
	if err := r.connect(ctx); err != nil {
		r.end()
		r.abort()
		return nil, err
	}
	return r, nil
}

func (r *Registry) connect(ctx context.Context) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DialTimeout)
	defer cancel()
	release := context.AfterFunc(ctx, r.abort) // the client logs in while it is made, under its own context
	cli, err := clientv3.New(clientv3.Config{
		Endpoints: r.cfg.Endpoints, DialTimeout: r.cfg.DialTimeout,
		DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout, PermitWithoutStream: true,
		TLS: r.cfg.TLS, Username: r.cfg.Username, Password: r.cfg.Password,
		Context: r.conn, Logger: zapTo(r.cfg.Logger),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: reconnectMax},
			MinConnectTimeout: r.cfg.DialTimeout,
		})},
	})
	if err == nil {
		// A count needs a leader, the right password and the right to read: all that can be wrong shows here.
		if _, err = cli.Get(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil {
			cli.Close()
		}
	}
	if !release() && err == nil { // too late by a hair: the client's context has been ended
		cli.Close()
		err = context.Cause(ctx)
	}
	if err == nil {
		r.cli = cli
		return nil
	}
	if ctx.Err() == nil && !passing(err) {
		return fmt.Errorf("etcd: %s (Config.Endpoints): %w", shown(r.cfg.Endpoints), err)
	}
	return &UnreachableError{Endpoints: r.cfg.Endpoints, After: time.Since(begin).Round(100 * time.Millisecond),
		Err: r.why(err)}
}

// why finds a better reason than "no answer in time": the client hides why it cannot connect.
func (r *Registry) why(err error) error {
	for _, e := range r.cfg.Endpoints {
		addr := e
		if u, perr := url.Parse(e); perr == nil && u.Host != "" {
			addr = u.Host
		}
		c, derr := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if derr == nil {
			c.Close()
			continue
		}
		return fmt.Errorf("%w (%w)", derr, err)
	}
	return err
}

// key is where a worker's record stands.
func (r *Registry) key(id string) string { return r.prefix + id }

// call is the context of one request to etcd.
func (r *Registry) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.cfg.DialTimeout)
}

// Close takes out the records of all registrations, ends the watches and joins all goroutines. Idempotent. The error
// says that records could not be taken out; they go when their lease ends.
func (r *Registry) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		<-r.done
		return nil
	}
	r.closed = true
	var regs []*registration
	for reg := range r.regs {
		regs = append(regs, reg)
	}
	r.mu.Unlock()
	defer close(r.done)

	r.end()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	errs := make([]error, len(regs))
	var wg sync.WaitGroup
	for i, reg := range regs {
		wg.Go(func() { errs[i] = reg.Withdraw(ctx) })
	}
	wg.Wait()
	r.wg.Wait()
	r.abort()
	_ = r.cli.Close() // reports its own cancelled context
	return errors.Join(errs...)
}
