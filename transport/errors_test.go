package transport

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestDeniedKnowsWhatOtherEndpointsWouldSayToo(t *testing.T) {
	for _, err := range []error{&IdentityError{}, &CertificateError{Err: io.EOF}, &RefusedError{Err: io.EOF},
		&ProtocolError{}} {
		if !Denied(fmt.Errorf("dial: %w", err)) || !Denied(errors.Join(io.EOF, err)) {
			t.Errorf("%T is not known", err)
		}
	}
	for _, err := range []error{nil, io.EOF, ErrClosed, &BindError{Err: io.EOF}} {
		if Denied(err) {
			t.Errorf("%v is no refusal", err)
		}
	}
}

func TestPeerNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"worker": true, "worker.example.com": true, "10.0.0.1": true, "::1": true, "spiffe://cluster/worker": true,
		"spiffe://cluster/ns/a/sa/b": true,
		"":                           false, "a b": false, "*.example.com": false, "a/b": false, "spiffe://": false,
		"spiffe:///worker":   false,
		"spiffe://cluster/*": false, "spiffe://c/w?x=1": false,
	} {
		if err := ValidPeerName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAuthorityNeedsAllFiles(t *testing.T) {
	err := AuthorityConfig{}.Validate()
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 4 {
		t.Errorf("complaints: %v", err)
	}
	if _, err := NewAuthority(AuthorityConfig{}); err == nil {
		t.Error("an Authority without files")
	}
}

func TestCurves(t *testing.T) {
	if Curves()[0] != "X25519" {
		t.Errorf("the default is %s", Curves()[0])
	}
	for _, name := range Curves() {
		if _, err := ParseCurve(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseCurve("x25519"); err == nil {
		t.Error("names are exact")
	}
}
