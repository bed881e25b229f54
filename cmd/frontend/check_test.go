package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

// TestCheckConfig: what a run refuses before it asks anybody else, --check-config refuses too.
func TestCheckConfig(t *testing.T) {
	cert, key, _ := devtest.Certificate(t)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--http-addr=:0 --admin-addr=:0", ""},
		{"--http-addr=127.0.0.1:8000 --admin-addr=127.0.0.2:8000", ""},
		{"--http-tls-cert=" + cert + " --http-tls-key=" + key + " --etcd-ca-file=" + cert, ""},
		{"--etcd-endpoints=127.0.0.1:2379,https://etcd.example:2379", ""},
		{"--http-addr=127.0.0.1:8000 --admin-addr=127.0.0.1:8000", "are one port"},
		{"--http-addr=:8000 --admin-addr=127.0.0.1:8000", "are one port"},
		{"--etcd-endpoints=http://", "--etcd-endpoints http://: is not an address of etcd"},
		{"--etcd-endpoints=a:1,ftp://b:2", "--etcd-endpoints ftp://b:2"},
		{"--etcd-endpoints=etcd", "--etcd-endpoints etcd"},
		{"--etcd-ca-file=/no/such/file", "--etcd-ca-file /no/such/file"},
		{"--http-tls-cert=" + text + " --http-tls-key=" + text, "--http-tls-cert " + text},
		{"--response-plane=tls --tls-ca=/no/such/ca --tls-cert=" + cert + " --tls-key=" + key + " --peer-name=laneway",
			"/no/such/ca"},
		{"--response-plane=record-quic --out-path=inline", "--out-path inline"},
	} {
		var out, errs strings.Builder
		app, _ := newApp()
		app.Env, app.Stdout, app.Stderr = nil, &out, &errs
		code := app.Run(append(strings.Fields(c.args), "--check-config"), nil)
		if (code == 0) != (c.want == "") || !strings.Contains(errs.String(), c.want) {
			t.Errorf("%s: exit code %d, %q, want %q in it", c.args, code, errs.String(), c.want)
		}
	}
}
