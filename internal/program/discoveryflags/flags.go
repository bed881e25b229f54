// Package discoveryflags declares how every program finds etcd and NATS, and connects to both.
package discoveryflags

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// group is the heading of --help.
const group = "Discovery"

// Options adapt the flags to a program.
type Options struct {
	// Worker says that the program registers workers, so that it has a lease.
	Worker bool
}

// Flags are the declared flags of one program.
type Flags struct {
	namespace                                             *string
	natsURL                                               *redact.URL
	etcdEndpoints                                         *[]redact.URL
	etcdUser, etcdPasswordFile, etcdCA, etcdCert, etcdKey *string
	natsUser, natsPasswordFile, natsCreds, natsNKey       *string
	natsCA, natsCert, natsKey                             *string
	leaseTTL, wait                                        *time.Duration
}

// Register declares the flags. Secrets are read from files, so that no process list and no report has them.
func Register(app *cli.App, o Options) *Flags {
	g := app.Group(group)
	file := func(name, usage string) *string { return g.Checked(name, "", "FILE", usage, nil) }
	f := &Flags{}
	f.namespace = g.Checked("namespace", "default", "NAME", "namespace of the registry and of the delivery subjects",
		validNamespace)
	f.etcdEndpoints = g.URLs("etcd-endpoints", []string{"http://127.0.0.1:2379"},
		"etcd, where the workers are registered: host:port or URLs of its members")
	f.etcdUser = g.String("etcd-username", "", "user at etcd; needs --etcd-password-file")
	f.etcdPasswordFile = file("etcd-password-file", "file that holds the password at etcd")
	f.etcdCA = file("etcd-ca-file",
		"PEM file of the authorities that etcd's certificate must come from; makes the connection TLS")
	f.etcdCert = file("etcd-cert-file", "PEM file of this client's certificate at etcd; needs --etcd-key-file")
	f.etcdKey = file("etcd-key-file", "PEM file of its key")
	if o.Worker {
		f.leaseTTL = g.Duration("lease-ttl", etcd.DefaultLeaseTTL, cli.Range(time.Second, time.Hour),
			"how long the workers of a process that died stay registered, in whole seconds")
		app.Check(func() error {
			if *f.leaseTTL%time.Second != 0 {
				return fmt.Errorf("--lease-ttl %s: use whole seconds, such as 10s", *f.leaseTTL)
			}
			return nil
		})
	}
	f.natsURL = g.URL("nats-url", "nats://127.0.0.1:4222", "URL",
		"NATS, which carries the requests; several servers with commas between", CheckNATS)
	f.natsUser = g.String("nats-username", "", "user at NATS; needs --nats-password-file")
	f.natsPasswordFile = file("nats-password-file", "file that holds the password at NATS")
	f.natsCreds = file("nats-creds-file", "credentials file (a JWT and its nkey) for NATS")
	f.natsNKey = file("nats-nkey-file", "file that holds the seed of an nkey for NATS")
	f.natsCA = file("nats-ca-file",
		"PEM file of the authorities that the certificate of NATS must come from; makes the connection TLS")
	f.natsCert = file("nats-cert-file", "PEM file of this client's certificate at NATS; needs --nats-key-file")
	f.natsKey = file("nats-key-file", "PEM file of its key")
	f.wait = g.Duration("wait-for-discovery", 5*time.Second, cli.Range(0, 24*time.Hour),
		"how long etcd and NATS may take to answer when the process starts")
	app.Check(f.check)
	return f
}

// check looks at what single flags cannot see.
func (f *Flags) check() error {
	errs := []error{CheckEndpoints(*f.etcdEndpoints)}
	together := func(a, b string, va, vb *string) {
		if (*va == "") != (*vb == "") {
			if *va == "" {
				a, b = b, a
			}
			errs = append(errs, fmt.Errorf("--%s needs --%s: give both or neither", a, b))
		}
	}
	together("etcd-username", "etcd-password-file", f.etcdUser, f.etcdPasswordFile)
	together("etcd-cert-file", "etcd-key-file", f.etcdCert, f.etcdKey)
	together("nats-username", "nats-password-file", f.natsUser, f.natsPasswordFile)
	together("nats-cert-file", "nats-key-file", f.natsCert, f.natsKey)
	var ways []string
	for _, w := range []struct {
		flag  string
		value *string
	}{{"--nats-username", f.natsUser}, {"--nats-creds-file", f.natsCreds}, {"--nats-nkey-file", f.natsNKey}} {
		if *w.value != "" {
			ways = append(ways, w.flag)
		}
	}
	if len(ways) > 1 {
		errs = append(errs, fmt.Errorf("%s exclude each other: keep one", strings.Join(ways, " and ")))
	}
	return errors.Join(errs...)
}

// CheckEndpoints looks at the values of --etcd-endpoints.
func CheckEndpoints(list []redact.URL) error {
	var errs []error
	for _, e := range list {
		if err := etcd.CheckEndpoint(e.Whole()); err != nil {
			if strings.Contains(e.Whole(), "@") {
				err = fmt.Errorf("%w (--etcd-username, --etcd-password-file)", err)
			}
			errs = append(errs, &cli.FlagError{Flag: "etcd-endpoints", Where: "--etcd-endpoints", Value: e.String(),
				Err: err})
		}
	}
	return errors.Join(errs...)
}

func validNamespace(s string) error {
	if !discovery.ValidName(s) {
		return errors.New("is not a namespace: use 1 to 128 letters, digits, '-' or '_'")
	}
	return nil
}

// CheckNATS takes what the NATS client takes: one URL, or several with commas.
func CheckNATS(s string) error {
	for one := range strings.SplitSeq(s, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" {
			return errors.New("is not a NATS URL: write it like nats://127.0.0.1:4222")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("has the scheme %q: use nats://, tls://, ws:// or wss://", u.Scheme)
		}
	}
	return nil
}
