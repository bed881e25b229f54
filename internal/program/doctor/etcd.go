package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// checkEtcd asks every member for its version, then does what the program does. It returns the workers that are
// registered; nil when they cannot be read.
func checkEtcd(ctx context.Context, r *Report, cfg Config) []discovery.Worker {
	e := cfg.Discovery.Etcd
	answered := 0
	for _, at := range e.Endpoints {
		if checkMember(ctx, r, cfg, at) {
			answered++
		}
	}
	if answered == 0 {
		return nil
	}
	e.DialTimeout = cfg.timeout
	reg, err := etcd.New(ctx, e)
	if err != nil {
		text, fix := etcdWhy(err, e)
		r.fail("etcd", text, fix)
		return nil
	}
	defer reg.Close()
	workers, invalid, err := registered(ctx, reg, cfg.timeout)
	if err != nil {
		text, fix := etcdWhy(err, e)
		r.fail("etcd records", text, fix)
		return nil
	}
	r.ok("etcd records", "can be read below %s", prefix(e))
	for _, i := range invalid {
		r.warn("etcd records", i.Error(), "take the record out, or start its worker again with this version")
	}
	if cfg.Worker {
		checkWrite(ctx, r, cfg)
	}
	return workers
}

// prefix is where the workers of a namespace are.
func prefix(e etcd.Config) string {
	ns := e.Namespace
	if ns == "" {
		ns = etcd.DefaultNamespace
	}
	return "/laneway/v1/" + ns + "/workers/"
}

func etcdClient(ctx context.Context, cfg Config, endpoints ...string) (*clientv3.Client, error) {
	e := cfg.Discovery.Etcd
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: cfg.timeout, TLS: e.TLS,
		Username: e.Username, Password: e.Password,
		Context: ctx, Logger: zap.NewNop()})
}

// checkMember asks one member how it is. Others may do without it, so its silence alone is no failure, except where it
// is the only one.
func checkMember(ctx context.Context, r *Report, cfg Config, at string) bool {
	check := "etcd " + hostOf(at)
	bad := r.warn
	if len(cfg.Discovery.Etcd.Endpoints) == 1 {
		bad = r.fail
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	cli, err := etcdClient(ctx, cfg, at)
	if err != nil {
		text, fix := etcdWhy(err, cfg.Discovery.Etcd)
		bad(check, text, fix)
		return answers(err)
	}
	defer cli.Close()
	st, err := cli.Status(ctx, at)
	if err != nil {
		text, fix := etcdWhy(err, cfg.Discovery.Etcd)
		if c, derr := net.DialTimeout("tcp", hostOf(at), cfg.timeout); derr == nil {
			c.Close()
		} else { // which the client hides
			text = "does not answer: " + derr.Error()
		}
		bad(check, text, fix)
		return answers(err)
	}
	if len(st.Errors) > 0 {
		r.warn(check, "version "+st.Version+" says: "+strings.Join(st.Errors, "; "), "etcdctl alarm list")
		return true
	}
	r.ok(check, "version %s", st.Version)
	return true
}

// answers tells whether an error came from etcd itself.
func answers(err error) bool {
	var e rpctypes.EtcdError
	return errors.As(rpctypes.Error(err), &e)
}

// registered reads the workers that are there now.
func registered(ctx context.Context, reg discovery.Registry, limit time.Duration) (workers []discovery.Worker,
	invalid []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	events, err := reg.Watch(ctx)
	if err != nil {
		return nil, nil, err
	}
	workers = []discovery.Worker{}
	for e := range events {
		switch e.Kind {
		case discovery.Put:
			workers = append(workers, e.Worker)
		case discovery.Invalid:
			invalid = append(invalid, e.Err)
		case discovery.Synced:
			return workers, invalid, nil
		case discovery.Closed:
			err = e.Err
		}
	}
	return nil, nil, err
}

// checkWrite asks whether the worker may put its records and have a lease, without putting any: etcd checks the rights
// of both branches of a transaction, of which the one that writes is never taken here.
func checkWrite(ctx context.Context, r *Report, cfg Config) {
	e := cfg.Discovery.Etcd
	ctx, cancel := context.WithTimeout(ctx, cfg.timeout)
	defer cancel()
	cli, err := etcdClient(ctx, cfg, e.Endpoints...)
	if err != nil {
		text, fix := etcdWhy(err, e)
		r.fail("etcd rights", text, fix)
		return
	}
	defer cli.Close()
	key := prefix(e) + "doctor"
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	if _, err := cli.Txn(ctx).If(never).Then(clientv3.OpPut(key, "")).Commit(); err != nil {
		text, fix := etcdWhy(err, e)
		r.fail("etcd rights", text, fix)
		return
	}
	ttl := e.LeaseTTL
	if ttl == 0 {
		ttl = etcd.DefaultLeaseTTL
	}
	l, err := cli.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		text, fix := etcdWhy(err, e)
		r.fail("etcd lease", text, fix)
		return
	}
	if _, err := cli.Revoke(ctx, l.ID); err != nil {
		r.warn("etcd lease", "could not be given back: "+err.Error()+"; it runs out by itself", "")
	}
	if granted := time.Duration(l.TTL) * time.Second; granted > ttl {
		r.warn("etcd lease",
			fmt.Sprintf("etcd grants %s at least, --lease-ttl asks for %s: workers that died stay registered so long",
				granted, ttl), "lower etcd's --election-timeout, or accept it")
		return
	}
	r.ok("etcd rights", "records may be put below %s, a lease of %s is granted", prefix(e), ttl)
}

// etcdWhy explains what etcd or the way to it said.
func etcdWhy(err error, e etcd.Config) (text, fix string) {
	var said rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &said) {
		switch {
		case errors.Is(said, rpctypes.ErrPermissionDenied):
			user := e.Username
			if user == "" {
				user = "(none)"
			}
			return fmt.Sprintf("user %s may not do that below %s", user, prefix(e)),
				"etcdctl role grant-permission ROLE readwrite --prefix=true " + prefix(e) +
					" (read is enough for a frontend)"
		case errors.Is(said, rpctypes.ErrAuthFailed):
			return "user name or password is wrong", "correct --etcd-username or --etcd-password-file"
		case errors.Is(said, rpctypes.ErrUserEmpty):
			return "etcd wants a user", "set --etcd-username and --etcd-password-file"
		case errors.Is(said, rpctypes.ErrAuthNotEnabled):
			return "a user is given, but this etcd knows no users", "leave --etcd-username out, or etcdctl auth enable"
		}
		return said.Error(), ""
	}
	var gone *etcd.UnreachableError
	if errors.As(err, &gone) || errors.Is(err, context.DeadlineExceeded) {
		return "does not answer: " + err.Error(),
			"look whether it runs and whether TCP to it gets through; correct --etcd-endpoints (https:// or " +
				"--etcd-ca-file for TLS)"
	}
	return err.Error(), ""
}

// hostOf leaves out a user and a password that an address may hold.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return redact.Address(address)
}
