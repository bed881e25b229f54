package transporttest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/transport"
)

// Secured makes the nodes of a plane that proves who is at the other end.
type Secured struct {
	// New makes a transport that shows and demands what s says and logs to log.
	New func(t testing.TB, s transport.Security, log *slog.Logger) transport.Transport
	// Bind is where listeners bind, host:0.
	Bind string
}

// worker and frontend are the names of the suite's nodes.
const (
	worker   = "worker.laneway"
	frontend = "spiffe://laneway/frontend"
)

// RunSecurity holds a plane to one behaviour in its handshakes: who is taken, and what both sides say of one who is
// not.
func RunSecurity(t *testing.T, f Secured) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Secured)
	}{
		{"CertificatesOfOneAuthority", testAuthority},
		{"EveryCurve", testCurves},
		{"Refusals", testRefusals},
		{"ExpiredCertificate", testExpired},
		{"ReloadOnChange", testReload},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			c.run(t, f)
		})
	}
}

// errorLog keeps the errors of the warnings.
type errorLog struct {
	mu       sync.Mutex
	errs     []error
	messages []string
}

func (l *errorLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *errorLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *errorLog) WithGroup(string) slog.Handler            { return l }
func (l *errorLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && a.Key == "err" {
			l.errs = append(l.errs, err)
		}
		return true
	})
	return nil
}

func (l *errorLog) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.errs...)
}

// count is how many lines say so.
func (l *errorLog) count(message string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		if strings.Contains(m, message) {
			n++
		}
	}
	return n
}

// party is one node of the suite.
type party struct {
	tr  transport.Transport
	id  *transport.Identity
	log *errorLog
}

func newParty(t *testing.T, f Secured, s transport.Security) *party {
	t.Helper()
	p := &party{log: &errorLog{}}
	var err error
	if p.id, err = transport.NewIdentity(); err != nil {
		t.Fatal(err)
	}
	s.Identity = p.id
	p.tr = f.New(t, s, slog.New(p.log))
	t.Cleanup(func() {
		if err := p.tr.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

// authority is CA mode with a certificate for the name, of peers with the name of.
func authority(t *testing.T, trust, signs *CA, base, of string, l Leaf, log slog.Handler) *transport.Authority {
	t.Helper()
	cert, key := signs.Issue(t, base, l)
	cfg := transport.AuthorityConfig{CAFile: trust.File, CertFile: cert, KeyFile: key, PeerName: of}
	if log != nil {
		cfg.Logger = slog.New(log)
	}
	a, err := transport.NewAuthority(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// try dials, writes a byte and reads one; it gives what the dialler fails with. A dialler that was refused may learn it
// only at its first read. Where it is taken, the acceptor answers.
func try(t *testing.T, from *party, ln transport.Listener, peer transport.NodeID) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	served := make(chan struct{})
	accepting, done := context.WithCancel(ctx)
	go func() {
		defer close(served)
		a, err := ln.Accept(accepting)
		if err != nil {
			return
		}
		defer a.Close()
		var b [1]byte
		if _, err := io.ReadFull(a, b[:]); err == nil {
			_, _ = a.Write(b[:])
		}
		<-accepting.Done()
	}()
	defer func() { done(); <-served }()
	c, err := from.tr.Dial(ctx, transport.DialRequest{Address: ln.Endpoints()[0].String(), Peer: peer})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{7}); err != nil {
		return err
	}
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return err
	}
	if b[0] != 7 {
		t.Errorf("read %d, want 7", b[0])
	}
	return nil
}

func listen(t *testing.T, p *party, f Secured) transport.Listener {
	t.Helper()
	ln, err := p.tr.Listen(t.Context(), f.Bind, 1)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// seen waits for the acceptor's error.
func (p *party) seen(t *testing.T) error {
	t.Helper()
	eventually(t, "the acceptor says why it has no lane", func() bool { return len(p.log.all()) > 0 })
	errs := p.log.all()
	if len(errs) != 1 {
		t.Errorf("the acceptor says it %d times: %v", len(errs), errs)
	}
	return errs[0]
}

func testAuthority(t *testing.T, f Secured) {
	ca := NewCA(t, "root")
	a := newParty(t, f, transport.Security{Authority: authority(t, ca, ca, "worker", frontend, Leaf{Name: worker},
		nil)})
	d := newParty(t, f, transport.Security{Authority: authority(t, ca, ca, "frontend", worker, Leaf{Name: frontend},
		nil)})
	ln := listen(t, a, f)
	// The NodeID is not the certificate's: any is as good.
	for _, peer := range []transport.NodeID{a.id.ID, {}} {
		if err := try(t, d, ln, peer); err != nil {
			t.Fatal(err)
		}
	}
	c, err := d.tr.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String(), Peer: a.id.ID})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if i := c.Info(); i.Proven || !i.Peer.IsZero() {
		t.Errorf("a certificate that several may share proves a node: %+v", i)
	}
	if len(a.log.all())+len(d.log.all()) != 0 {
		t.Errorf("the logs say %v and %v", a.log.all(), d.log.all())
	}
}

func testCurves(t *testing.T, f Secured) {
	for _, name := range transport.Curves() {
		curve, err := transport.ParseCurve(name)
		if err != nil {
			t.Fatal(err)
		}
		s := transport.Security{Curves: []tls.CurveID{curve}}
		a, d := newParty(t, f, s), newParty(t, f, s)
		ln := listen(t, a, f)
		if err := try(t, d, ln, a.id.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// One that offers another curve is told that none is shared.
		differs := tls.X25519
		if curve == differs {
			differs = tls.CurveP256
		}
		other := newParty(t, f, transport.Security{Curves: []tls.CurveID{differs}})
		err = try(t, other, ln, a.id.ID)
		if bad, ok := errors.AsType[*transport.ProtocolError](err); !ok || !strings.Contains(bad.Error(),
			"key exchange") {
			t.Errorf("%s: a dialler with another curve got %v, want a *ProtocolError", name, err)
		}
	}
}

// testRefusals has each side refuse the other, for each reason, and looks at what both say.
func testRefusals(t *testing.T, f Secured) {
	ca, strange := NewCA(t, "root"), NewCA(t, "stranger")
	type side struct {
		trust, signs *CA
		peer         string
		leaf         Leaf
	}
	good := [2]side{{ca, ca, worker, Leaf{Name: frontend}}, {ca, ca, frontend, Leaf{Name: worker}}} // dialler, acceptor
	serverOnly, clientOnly := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, c := range map[string]struct {
		dialler, acceptor side // zero: pins
		pin               func(a *party) transport.NodeID
		wantDialler       any // what errors.As must find
		wantAcceptor      any
		says              [2][]string
	}{
		"wrong pin": {
			pin:         func(*party) transport.NodeID { return transport.NodeID{0xba, 0xd} },
			wantDialler: new(*transport.IdentityError), wantAcceptor: new(*transport.RefusedError),
			says: [2][]string{nil, {"another node", "this node showed the certificate of node"}},
		},
		"acceptor has the wrong name": {
			dialler: good[0], acceptor: side{ca, ca, frontend, Leaf{Name: "impostor.laneway"}},
			wantDialler: new(*transport.CertificateError), wantAcceptor: new(*transport.RefusedError),
			says: [2][]string{{"wrong name", worker, "impostor.laneway"}, {"peer name", "impostor.laneway"}},
		},
		"dialler has the wrong name": {
			dialler: side{ca, ca, worker, Leaf{Name: "spiffe://laneway/impostor"}}, acceptor: good[1],
			wantDialler: new(*transport.RefusedError), wantAcceptor: new(*transport.CertificateError),
			says: [2][]string{{"peer name", "spiffe://laneway/impostor"},
				{"wrong name", frontend, "spiffe://laneway/impostor"}},
		},
		"acceptor is of an unknown authority": {
			dialler: good[0], acceptor: side{ca, strange, frontend, Leaf{Name: worker}},
			wantDialler: new(*transport.CertificateError), wantAcceptor: new(*transport.RefusedError),
			says: [2][]string{{"unknown authority", ca.File, "stranger"}, {"authorit", "stranger"}},
		},
		"dialler is of an unknown authority": {
			dialler: side{ca, strange, worker, Leaf{Name: frontend}}, acceptor: good[1],
			wantDialler: new(*transport.RefusedError), wantAcceptor: new(*transport.CertificateError),
			says: [2][]string{{"authorit", "stranger"}, {"unknown authority", ca.File, "stranger"}},
		},
		"acceptor's certificate is for clients": {
			dialler: good[0], acceptor: side{ca, ca, frontend, Leaf{Name: worker, Usage: clientOnly}},
			wantDialler: new(*transport.CertificateError), wantAcceptor: new(*transport.RefusedError),
			says: [2][]string{{"incompatible key usage"}, {worker}},
		},
		"dialler's certificate is for servers": {
			dialler: side{ca, ca, worker, Leaf{Name: frontend, Usage: serverOnly}}, acceptor: good[1],
			wantDialler: new(*transport.RefusedError), wantAcceptor: new(*transport.CertificateError),
			says: [2][]string{{frontend}, {"incompatible key usage"}},
		},
		"only the dialler has an authority": {
			dialler:     good[0],
			wantDialler: new(*transport.CertificateError), wantAcceptor: new(*transport.RefusedError),
			says: [2][]string{{"unknown authority", "laneway node"},
				{"authorit", "this node showed the certificate of node"}},
		},
		"only the acceptor has an authority": {
			acceptor:    good[1],
			pin:         func(a *party) transport.NodeID { return a.id.ID },
			wantDialler: new(*transport.IdentityError), wantAcceptor: new(*transport.RefusedError),
			says: [2][]string{{"expected"}, {"authorit", worker}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s [2]transport.Security
			for i, x := range []side{c.dialler, c.acceptor} {
				if x.trust != nil {
					s[i].Authority = authority(t, x.trust, x.signs, strings.ReplaceAll(name, " ", "-")+
						string(rune('0'+i)), x.peer, x.leaf, nil)
				}
			}
			d, a := newParty(t, f, s[0]), newParty(t, f, s[1])
			ln := listen(t, a, f)
			var pin transport.NodeID
			if c.pin != nil {
				pin = c.pin(a)
			}
			if name == "wrong pin" {
				c.says[0] = []string{"expected " + pin.String(), "answered as node " + a.id.ID.String()}
			}
			address := ln.Endpoints()[0].String()
			check(t, "dialler", try(t, d, ln, pin), c.wantDialler, append(c.says[0], address))
			check(t, "acceptor", a.seen(t), c.wantAcceptor, c.says[1])
			if n := a.tr.Counters(); n.AcceptErrors != 1 || n.Accepts != 0 {
				t.Errorf("the acceptor counts %+v", n)
			}
			if len(d.log.all()) != 0 {
				t.Errorf("the dialler logs what it returns: %v", d.log.all())
			}
		})
	}
}

func check(t *testing.T, who string, err error, want any, says []string) {
	t.Helper()
	if err == nil {
		t.Fatalf("the %s has no error", who)
	}
	if !errors.As(err, want) {
		t.Errorf("the %s has %T %v, want %T", who, err, err, want)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the %s does not say %q: %v", who, s, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the %s says it in several lines: %q", who, err)
	}
}

// testExpired lets a certificate expire in the life of its node.
func testExpired(t *testing.T, f Secured) {
	ca := NewCA(t, "root")
	for _, who := range []string{"acceptor", "dialler"} {
		t.Run(who, func(t *testing.T) {
			life := map[bool]time.Duration{true: 2 * time.Second}
			a := newParty(t, f, transport.Security{Authority: authority(t, ca, ca, "w-"+who, frontend,
				Leaf{Name: worker, Life: life[who == "acceptor"]}, nil)})
			d := newParty(t, f, transport.Security{Authority: authority(t, ca, ca, "f-"+who, worker,
				Leaf{Name: frontend, Life: life[who == "dialler"]}, nil)})
			time.Sleep(2100 * time.Millisecond) // certificates know whole seconds
			ln := listen(t, a, f)
			de, ae := try(t, d, ln, a.id.ID), a.seen(t)
			refuses, refused := de, ae
			if who == "dialler" {
				refuses, refused = ae, de
			}
			bad, ok := errors.AsType[*transport.CertificateError](refuses)
			if !ok || bad.Reason != transport.CertificateExpired || !strings.Contains(bad.Error(), "valid from") {
				t.Errorf("the one who refuses says %v", refuses)
			}
			if _, ok := errors.AsType[*transport.RefusedError](refused); !ok || !strings.Contains(refused.Error(),
				"valid from") {
				t.Errorf("the refused one says %v", refused)
			}
		})
	}
}

// testReload changes the files in the life of the nodes.
func testReload(t *testing.T, f Secured) {
	ca, next := NewCA(t, "root"), NewCA(t, "next root")
	notes := &errorLog{}
	wa := authority(t, ca, ca, "worker", frontend, Leaf{Name: worker}, notes)
	a := newParty(t, f, transport.Security{Authority: wa})
	d := newParty(t, f, transport.Security{Authority: authority(t, ca, ca, "frontend", worker, Leaf{Name: frontend},
		nil)})
	ln := listen(t, a, f)
	if err := try(t, d, ln, a.id.ID); err != nil {
		t.Fatal(err)
	}
	// A file that cannot be used keeps the old one in force and is reported once.
	if err := os.WriteFile(ca.dir+"/worker.pem", []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := try(t, d, ln, a.id.ID); err != nil {
			t.Fatalf("with the old certificate: %v", err)
		}
	}
	if n := notes.count("cannot be used"); n != 1 {
		t.Errorf("%d lines about a file that cannot be used, want 1", n)
	}
	// A right one for another name is shown from now on: its peer refuses it.
	ca.Issue(t, "worker", Leaf{Name: "renamed.laneway"})
	if err := try(t, d, ln, a.id.ID); err == nil || !strings.Contains(err.Error(), "renamed.laneway") {
		t.Errorf("after the change of the name: %v", err)
	}
	// The trusted authorities change too.
	ca.Issue(t, "worker", Leaf{Name: worker})
	pem, err := os.ReadFile(next.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca.File+".next", pem, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ca.File+".next", ca.File); err != nil {
		t.Fatal(err)
	}
	err = try(t, d, ln, a.id.ID)
	if bad, ok := errors.AsType[*transport.CertificateError](err); !ok ||
		bad.Reason != transport.CertificateUnknownAuthority {
		t.Errorf("after the change of the authorities: %v", err)
	}
	if n := notes.count("read again"); n < 2 {
		t.Errorf("%d lines about files that were read again", n)
	}
}
