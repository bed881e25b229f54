package transporttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// CA is a certificate authority for tests. Its files live until the test ends.
type CA struct {
	// File is the authority's certificate.
	File string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes an authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{dir: t.TempDir()}
	ca.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.File = filepath.Join(ca.dir, "ca.pem")
	writePEM(t, ca.File, "CERTIFICATE", der)
	return ca
}

// Leaf says what a certificate is like. The zero value is for both roles and an hour, without a name.
type Leaf struct {
	Name  string        // a DNS name, or a URI if it has "://"
	Life  time.Duration // from now; 0 = an hour
	Usage []x509.ExtKeyUsage
}

// Issue makes a certificate and its key at base.pem and base.key, in the place of those that are there.
func (ca *CA) Issue(t testing.TB, base string, l Leaf) (certFile, keyFile string) {
	t.Helper()
	if l.Life == 0 {
		l.Life = time.Hour
	}
	if l.Usage == nil {
		l.Usage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "leaf of " + ca.cert.Subject.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(l.Life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.Usage,
	}
	if strings.Contains(l.Name, "://") {
		u, err := url.Parse(l.Name)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	} else if l.Name != "" {
		template.DNSNames = []string{l.Name}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(ca.dir, base+".pem"), filepath.Join(ca.dir, base+".key")
	writePEM(t, keyFile, "PRIVATE KEY", secret)
	writePEM(t, certFile, "CERTIFICATE", der)
	return certFile, keyFile
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// writePEM puts a file in the place of another in one step, as those who renew certificates should.
func writePEM(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	next := name + ".next"
	if err := os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, name); err != nil {
		t.Fatal(err)
	}
}
