package planeflags

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/transport"
)

// securityFlags are the flags of CA mode and of the key exchange.
type securityFlags struct {
	ca, cert, key, peerName *string
	curves                  *[]string
}

func (s *securityFlags) register(g *cli.Group) {
	s.ca = g.Checked("tls-ca", "", "FILE",
		"authorities (PEM) whose certificates are taken on the planes tls and quic, in the place of pins; "+
			"this and the next two files are read again when they change", nil)
	s.cert = g.Checked("tls-cert", "", "FILE",
		"with --tls-ca: this node's certificate, with its intermediates (PEM), for servers and clients", nil)
	s.key = g.Checked("tls-key", "", "FILE", "with --tls-ca: the certificate's private key (PEM)", nil)
	s.peerName = g.Checked("peer-name", "", "NAME",
		"with --tls-ca: the DNS name or URI (spiffe://cluster/worker) that the certificate of the other side must have",
		validPeerName)
	s.curves = g.EnumList("tls-curves", transport.Curves()[:1], transport.Curves(),
		"key exchanges that are offered and taken on the planes tls and quic; both ends must share one")
}

func validPeerName(s string) error {
	if transport.ValidPeerName(s) != nil {
		return errors.New("is neither a DNS name nor a URI: write it like worker.example.com or " +
			"spiffe://cluster/worker")
	}
	return nil
}

// check looks at the flags of CA mode together.
func (s *securityFlags) check(planes []string) error {
	given := []struct {
		name, value, what string
	}{{"tls-ca", *s.ca, "the authorities that are trusted"}, {"tls-cert", *s.cert, "this node's certificate"},
		{"tls-key", *s.key, "the certificate's private key"},
		{"peer-name", *s.peerName, "the name that the other side must have"}}
	var have, lack []string
	for _, f := range given {
		if f.value != "" {
			have = append(have, "--"+f.name)
		} else {
			lack = append(lack, "--"+f.name+" ("+f.what+")")
		}
	}
	switch {
	case len(have) == 0:
		return nil
	case len(lack) > 0:
		return fmt.Errorf("%s without %s: certificates of an authority need all four, pins need none",
			strings.Join(have, ", "), strings.Join(lack, ", "))
	case slices.Contains(Carriers(planes), transport.PlaneTCP):
		return fmt.Errorf("--tls-ca with --%s %s: the plane tcp shows and checks no certificate, so a link could be "+
			"made that nothing protects; leave tcp out", planeFlag, strings.Join(planes, ","))
	}
	return nil
}

// security makes what the handshakes of the node show and demand.
func (s Settings) security(id *transport.Identity, log *slog.Logger) (transport.Security, error) {
	sec := transport.Security{Identity: id}
	for _, name := range s.TLSCurves {
		c, err := transport.ParseCurve(name)
		if err != nil {
			return sec, fmt.Errorf("--tls-curves: %w", err)
		}
		sec.Curves = append(sec.Curves, c)
	}
	if s.TLSCA == "" {
		return sec, nil
	}
	var err error
	sec.Authority, err = transport.NewAuthority(transport.AuthorityConfig{CAFile: s.TLSCA, CertFile: s.TLSCert,
		KeyFile: s.TLSKey, PeerName: s.PeerName, Logger: log})
	if err != nil {
		return sec, fmt.Errorf("--tls-ca, --tls-cert, --tls-key: %w", err)
	}
	return sec, nil
}
