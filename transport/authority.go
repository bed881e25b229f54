package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// AuthorityConfig names the files of CA mode. All fields but Logger are required.
type AuthorityConfig struct {
	// CAFile has the certificates of the authorities that are trusted, PEM.
	CAFile string
	// CertFile and KeyFile are this node's certificate, with its intermediates after it, and its private key, PEM.
	CertFile, KeyFile string
	// PeerName is what the peer's certificate must name: a DNS name, an IP address, or a URI such as
	// spiffe://cluster/worker.
	PeerName string
	// Logger is told of files that were read again or that could not be; nil drops it.
	Logger *slog.Logger
}

// Validate joins all complaints that can be known without reading the files.
func (c AuthorityConfig) Validate() error {
	var errs []error
	for _, f := range []struct{ value, what string }{{c.CAFile, "the file of the authorities"},
		{c.CertFile, "the file of this node's certificate"}, {c.KeyFile, "the file of its private key"}} {
		if f.value == "" {
			errs = append(errs, fmt.Errorf("transport: CA mode needs %s", f.what))
		}
	}
	return errors.Join(append(errs, ValidPeerName(c.PeerName))...)
}

// ValidPeerName says whether a certificate can have the name: a host name, an IP address, or a URI with a host.
func ValidPeerName(name string) error {
	if name == "" {
		return errors.New("transport: CA mode needs a peer name: without one every certificate of the authorities " +
			"could take part")
	}
	if strings.Contains(name, "://") {
		if u, err := url.Parse(name); err != nil || u.Scheme == "" || u.Host == "" || u.RawQuery != "" ||
			u.Fragment != "" || strings.Contains(name, "*") {
			return fmt.Errorf("transport: peer name %q is not a URI like spiffe://cluster/worker", name)
		}
		return nil
	}
	if strings.ContainsAny(name, " /*@") || strings.HasPrefix(name, ".") {
		return fmt.Errorf("transport: peer name %q is neither a DNS name nor a URI like spiffe://cluster/worker", name)
	}
	return nil
}

// Authority is CA mode: this node's certificate and the authorities whose certificates it takes. The files are looked
// at before each handshake and read again when one has changed; if they cannot be used, the old ones stay and that is
// logged once. Lanes that are open are not touched. It is safe for concurrent use.
type Authority struct {
	cfg     AuthorityConfig
	log     *slog.Logger
	now     atomic.Pointer[loaded]
	looking atomic.Bool // somebody looks at the files
	failed  atomic.Pointer[[3]os.FileInfo]
}

// loaded is what the files held when they looked like seen.
type loaded struct {
	seen  [3]os.FileInfo
	roots *x509.CertPool
	cert  tls.Certificate
}

// NewAuthority reads the files.
func NewAuthority(cfg AuthorityConfig) (*Authority, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Authority{cfg: cfg, log: cfg.Logger}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	l, err := a.load(a.look())
	if err != nil {
		return nil, err
	}
	a.now.Store(l)
	return a, nil
}

// PeerName is the name that peers must have.
func (a *Authority) PeerName() string { return a.cfg.PeerName }

// look looks at the files; what is not there is nil.
func (a *Authority) look() (seen [3]os.FileInfo) {
	for i, name := range []string{a.cfg.CAFile, a.cfg.CertFile, a.cfg.KeyFile} {
		if info, err := os.Stat(name); err == nil {
			seen[i] = info
		}
	}
	return seen
}

// alike says whether nothing has changed between two looks.
func alike(a, b [3]os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			if a[i] != b[i] {
				return false
			}
			continue
		}
		if a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) || !os.SameFile(a[i], b[i]) {
			return false
		}
	}
	return true
}

// load reads the files.
func (a *Authority) load(seen [3]os.FileInfo) (*loaded, error) {
	pem, err := os.ReadFile(a.cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("transport: read the authorities: %w", err)
	}
	l := &loaded{seen: seen, roots: x509.NewCertPool()}
	if !l.roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("transport: %s holds no certificate in PEM form", a.cfg.CAFile)
	}
	if l.cert, err = tls.LoadX509KeyPair(a.cfg.CertFile, a.cfg.KeyFile); err != nil {
		return nil, fmt.Errorf("transport: the certificate in %s and the key in %s cannot be used: %w", a.cfg.CertFile,
			a.cfg.KeyFile, err)
	}
	if end := l.cert.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("transport: the certificate in %s has expired at %s: every peer would refuse it",
			a.cfg.CertFile, end.UTC().Format(time.RFC3339))
	}
	return l, nil
}

// current is what the files hold now, or held when they could last be used.
func (a *Authority) current() *loaded {
	l := a.now.Load()
	if !a.looking.CompareAndSwap(false, true) {
		return l
	}
	defer a.looking.Store(false)
	seen := a.look()
	if alike(seen, l.seen) {
		a.failed.Store(nil)
		return l
	}
	if f := a.failed.Load(); f != nil && alike(seen, *f) {
		return l
	}
	next, err := a.load(seen)
	if err != nil {
		a.failed.Store(&seen)
		a.log.Warn("transport: changed certificate files cannot be used; the old ones stay in force", "err", err)
		return l
	}
	a.failed.Store(nil)
	a.now.Store(next)
	a.log.Info("transport: certificate files were read again", "certificate", describe(next.cert.Leaf))
	return next
}

// show has c show the certificate of the moment of each handshake.
func (a *Authority) show(c *tls.Config) {
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &a.current().cert, nil }
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate,
		error) {
		return &a.current().cert, nil
	}
}

// shown describes the certificate that this node shows.
func (a *Authority) shown() string { return describe(a.now.Load().cert.Leaf) }

// Roles of a peer whose certificate is checked, and what it must be good for.
const (
	asWorker   = x509.ExtKeyUsageServerAuth
	asFrontend = x509.ExtKeyUsageClientAuth
)

// verify checks the chain and the name of what the peer showed.
func (a *Authority) verify(cs tls.ConnectionState, usage x509.ExtKeyUsage) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("transport: the peer showed no certificate")
	}
	leaf := cs.PeerCertificates[0]
	opts := x509.VerifyOptions{Roots: a.current().roots, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range cs.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(opts)
	reason := whyInvalid(err)
	if err == nil && !a.named(leaf) {
		reason, err = CertificateWrongName, fmt.Errorf("the certificate is not for %q", a.cfg.PeerName)
	}
	if err == nil {
		return nil
	}
	return &CertificateError{
		Reason: reason, Err: err, Got: describe(leaf),
		Want: fmt.Sprintf("a valid certificate of the authorities in %s for the name %q", a.cfg.CAFile, a.cfg.PeerName),
	}
}

// named says whether the certificate is for PeerName.
func (a *Authority) named(leaf *x509.Certificate) bool {
	if !strings.Contains(a.cfg.PeerName, "://") {
		return leaf.VerifyHostname(a.cfg.PeerName) == nil
	}
	for _, u := range leaf.URIs {
		if u.String() == a.cfg.PeerName {
			return true
		}
	}
	return false
}

// whyInvalid puts an error of x509 into one of a few words.
func whyInvalid(err error) CertificateReason {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return CertificateUnknownAuthority
	}
	if bad, ok := errors.AsType[x509.CertificateInvalidError](err); ok && bad.Reason == x509.Expired {
		return CertificateExpired
	}
	return CertificateInvalid
}

// describe says what a person needs to know of a certificate: whom it names, who signed it and when it is valid.
func describe(c *x509.Certificate) string {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	return fmt.Sprintf("certificate %q for the names %q, signed by %q, valid from %s to %s",
		c.Subject, names, c.Issuer, c.NotBefore.UTC().Format(time.RFC3339), c.NotAfter.UTC().Format(time.RFC3339))
}
