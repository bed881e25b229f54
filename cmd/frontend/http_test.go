package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// TestHTTPS streams over HTTPS with HTTP/2, and over the plain port with its prior knowledge.
func TestHTTPS(t *testing.T) {
	cert, key, trust := devtest.Certificate(t)
	for name, args := range map[string][]string{"https": {"--http-tls-cert=" + cert, "--http-tls-key=" + key},
		"http": nil} {
		t.Run(name, func(t *testing.T) {
			p := start(t, args...)
			tr := &http.Transport{TLSClientConfig: trust.Clone(), Protocols: new(http.Protocols)}
			tr.Protocols.SetHTTP2(true)
			tr.Protocols.SetUnencryptedHTTP2(name == "http")
			defer tr.CloseIdleConnections()
			p.client = &http.Client{Transport: tr, Timeout: patience}
			p.http = strings.Replace(p.http, "http:", name+":", 1)
			p.plane.records <- " a"
			resp := p.post(streaming)
			if resp.ProtoMajor != 2 || resp.StatusCode != 200 {
				t.Fatalf("%s %d", resp.Proto, resp.StatusCode)
			}
			p.plane.records <- " b"
			close(p.plane.records)
			body, err := io.ReadAll(resp.Body)
			if err != nil || !strings.Contains(string(body), `" b"`) || !strings.HasSuffix(string(body),
				"data: [DONE]\n\n") {
				t.Errorf("%v %s", err, body)
			}
		})
	}
}

// TestCertificateIsReadAgain replaces the files under a running server, first by something that is no certificate.
func TestCertificateIsReadAgain(t *testing.T) {
	cert, key, _ := devtest.Certificate(t)
	c, err := newCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.fresh = 0
	get := func() []byte {
		t.Helper()
		pair, err := c.config().GetCertificate(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Certificate[0]
	}
	old := get()
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if string(get()) != string(old) {
		t.Error("a file that is no certificate was taken")
	}
	cert2, key2, _ := devtest.Certificate(t)
	for from, to := range map[string]string{cert2: cert, key2: key} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if string(get()) == string(old) {
		t.Error("the new certificate was not taken")
	}
	c.fresh = time.Hour
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if get() == nil {
		t.Error("a fresh certificate was read again")
	}
}

func TestHTTPFlagsThatDoNotHold(t *testing.T) {
	cert, _, _ := devtest.Certificate(t)
	none := filepath.Join(t.TempDir(), "none.pem")
	app := cli.New("frontend", "")
	app.Env = nil
	declare(app)
	if err := app.Parse([]string{"--http-tls-cert=" + cert}); err == nil || !strings.Contains(err.Error(),
		"--http-tls-key") {
		t.Errorf("a certificate without its key: %v", err)
	}
	for _, args := range [][]string{{"--http-tls-cert=" + none, "--http-tls-key=" + none},
		{"--http-tls-cert=" + cert, "--http-tls-key=" + cert}} {
		played := newPlayedPlane()
		ctx, cancel := context.WithTimeout(context.Background(), patience) // it would serve otherwise
		defer cancel()
		err := run(ctx, slog.New(slog.DiscardHandler), parse(t, args...), playedConnector(played))
		var fe *cli.FlagError
		if !errors.As(err, &fe) || !strings.HasPrefix(fe.Error(), "--http-tls-cert ") {
			t.Errorf("%v: %v", args, err)
		}
		select {
		case <-played.closed:
		default:
			t.Error("the plane was left open")
		}
	}
	for flag, value := range map[string]string{"max-header-bytes": "1KiB", "max-connections": "-1",
		"write-timeout": "1ms", "http2-max-streams": "0", "max-body-bytes": "2GiB"} {
		app := cli.New("frontend", "")
		app.Env = nil
		declare(app)
		if err := app.Parse([]string{"--" + flag + "=" + value}); err == nil || !strings.Contains(err.Error(), "--"+
			flag) || !strings.Contains(err.Error(), value) {
			t.Errorf("--%s=%s: %v", flag, value, err)
		}
	}
}
