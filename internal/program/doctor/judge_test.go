package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMTU(t *testing.T) {
	for _, c := range []struct {
		mtu, max int
		addr     string
		level    Level
		text     string
	}{
		{1500, 0, "10.0.0.1", OK, "up to 1452 bytes"},
		{1400, 0, "10.0.0.1", OK, "up to 1372 bytes"},
		{1400, 1452, "10.0.0.1", Fail, "leaves 1372 bytes for a QUIC packet, --max-mtu 1452 is more"},
		{1480, 1452, "10.0.0.1", OK, "--max-mtu 1452 fit"},
		{1480, 1452, "fd00::1", Fail, "leaves 1432"},
		{1220, 0, "10.0.0.1", Fail, "QUIC needs 1200"},
		{65536, 0, "::1", OK, "up to 1452"},
	} {
		s := settings("quic")
		s.MaxMTU = c.max
		r := &Report{}
		judgeMTU(r, s, "MTU", c.mtu, c.addr)
		r.want(t, c.level, 1, c.text)
	}
	r := &Report{}
	judgeMTU(r, settings("tls"), "MTU", 600, "10.0.0.1")
	r.want(t, OK, 1, "600")
}

// certificate writes a certificate that signs itself, and its key.
func certificate(t *testing.T, from, to time.Time, ca bool) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "it"}, NotBefore: from,
		NotAfter: to, IsCA: ca, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", kder)
}

func TestCertificates(t *testing.T) {
	now := time.Now()
	year := 365 * 24 * time.Hour
	cert, key := certificate(t, now.Add(-time.Hour), now.Add(year), false)
	_, otherKey := certificate(t, now.Add(-time.Hour), now.Add(year), false)
	ca, _ := certificate(t, now.Add(-time.Hour), now.Add(year), true)
	old, oldKey := certificate(t, now.Add(-year), now.Add(-time.Hour), true)
	early, earlyKey := certificate(t, now.Add(time.Hour), now.Add(year), true)
	late, lateKey := certificate(t, now.Add(-time.Hour), now.Add(24*time.Hour), true)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		values map[string]string
		level  Level
		text   string
	}{
		{"good", map[string]string{"http-tls-cert": cert, "http-tls-key": key}, OK, "with its key"},
		{"good authority", map[string]string{"etcd-ca-file": ca}, OK, "1 authorities"},
		{"wrong key", map[string]string{"nats-cert-file": cert, "nats-key-file": otherKey}, Fail,
			"does not go with --nats-key-file"},
		{"no key", map[string]string{"tls-cert": cert, "tls-key": cert + ".gone"}, Fail, "no such file"},
		{"expired", map[string]string{"tls-cert": old, "tls-key": oldKey}, Fail, "ran out"},
		{"expired authority", map[string]string{"tls-ca": old}, Fail, "ran out"},
		{"not yet", map[string]string{"tls-cert": early, "tls-key": earlyKey}, Fail, "holds from"},
		{"soon", map[string]string{"tls-cert": late, "tls-key": lateKey}, Warn, "runs out"},
		{"no authority", map[string]string{"tls-ca": cert}, Warn, "not the certificate of an authority"},
		{"no PEM", map[string]string{"tls-ca": empty}, Fail, "holds no PEM certificate"},
		{"no file", map[string]string{"tls-ca": empty + ".gone"}, Fail, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Report{}
			checkCertificates(r, c.values, now)
			r.want(t, c.level, 1, c.text)
		})
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	r := &Report{}
	checkCertificates(r, map[string]string{"tls-cert": cert, "tls-key": key, "nats-nkey-file": empty, "peer-name": "x"},
		now)
	r.want(t, Warn, 1, "every user of this machine may read it")
	r.failures(t)
}
