package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"time"
)

// NodeID names a node: the first 16 bytes of the SHA-256 of its certificate. A node makes a new certificate at every
// start, so a NodeID names one life of a process.
type NodeID [16]byte

// String is the NodeID in hex.
func (id NodeID) String() string { return hex.EncodeToString(id[:]) }

// IsZero says whether the NodeID is the zero value, which no node has.
func (id NodeID) IsZero() bool { return id == NodeID{} }

// ParseNodeID reads 32 hex digits.
func ParseNodeID(s string) (NodeID, error) {
	var id NodeID
	if n, err := hex.Decode(id[:], []byte(s)); err != nil || n != len(id) || len(s) != 2*len(id) {
		return NodeID{}, fmt.Errorf("transport: node id %q is not 32 hex digits", s)
	}
	return id, nil
}

// CertificateID is the NodeID of a certificate in DER form.
func CertificateID(der []byte) NodeID {
	sum := sha256.Sum256(der)
	return NodeID(sum[:16])
}

// Identity is a node's key pair and certificate.
type Identity struct {
	ID          NodeID
	Certificate tls.Certificate
}

// identityLife is how long a node's own certificate is valid. Pins do not look at it; it only has to outlive a process.
const identityLife = 10 * 365 * 24 * time.Hour

// NewIdentity makes a key pair and a self-signed certificate for one life of a node. ECDSA P-256, because every TLS
// stack verifies it and its handshake costs the same as Ed25519's here.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("transport: make a node key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("transport: make a certificate serial: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "laneway node"},
		NotBefore:    now.Add(-time.Hour), // clocks of two hosts differ
		NotAfter:     now.Add(identityLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("transport: make a node certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("transport: read back the node certificate: %w", err)
	}
	return &Identity{
		ID:          CertificateID(der),
		Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
	}, nil
}
