package planeflags

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

// TestCertificatesOfAnAuthorityCarryResponses runs a frontend and two workers with flags of CA mode over each plane.
// The workers share a certificate and are two nodes all the same.
func TestCertificatesOfAnAuthorityCarryResponses(t *testing.T) {
	ca := transporttest.NewCA(t, "root")
	workerCert, workerKey := ca.Issue(t, "worker", transporttest.Leaf{Name: "spiffe://cluster/worker"})
	frontCert, frontKey := ca.Issue(t, "frontend", transporttest.Leaf{Name: "frontend.example"})
	for _, plane := range []string{"quic", "tls"} {
		t.Run(plane, func(t *testing.T) {
			settings := func(cert, key, peer string) Settings {
				f, err := parse(t, "--response-plane="+plane, "--bind-addr=127.0.0.1:0", "--lanes=2",
					"--server-endpoints=2", "--udp-recv-buffer=256KiB",
					"--udp-send-buffer=256KiB", "--tls-ca="+ca.File, "--tls-cert="+cert, "--tls-key="+key,
					"--peer-name="+peer)
				if err != nil {
					t.Fatal(err)
				}
				return f.Settings()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			fs, ws := settings(frontCert, frontKey, "spiffe://cluster/worker"), settings(workerCert, workerKey,
				"frontend.example")
			frontTransports, frontID := build(t, fs, nil)
			frontend, err := responseplane.NewFrontend(fs.Frontend(frontID, frontTransports, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer frontend.Close()
			for range 2 {
				transports, id := build(t, ws, nil)
				worker, err := responseplane.NewWorker(ws.Worker(id, transports, nil))
				if err != nil {
					t.Fatal(err)
				}
				defer worker.Close()
				if err := worker.Listen(ctx); err != nil {
					t.Fatal(err)
				}
				if _, err := frontend.AddPeer(worker.Descriptor()); err != nil {
					t.Fatal(err)
				}
				respond(ctx, t, frontend, worker, id.ID)
			}
		})
	}
}

// respond sends one response of two records from the worker to the frontend.
func respond(ctx context.Context, t *testing.T, frontend *responseplane.Frontend, worker *responseplane.Worker,
	id transport.NodeID) {
	t.Helper()
	if err := frontend.AwaitPeer(ctx, id); err != nil {
		t.Fatal(err)
	}
	r, err := frontend.Mint(ctx, id, responseplane.MintOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := worker.Attach(r.Terms())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"to", "ken"} {
		if err := w.Put(ctx, []byte(token)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Complete(nil); err != nil {
		t.Fatal(err)
	}
	got := ""
	for {
		record, err := r.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += string(record)
	}
	if got != "token" {
		t.Errorf("got %q", got)
	}
}

// TestBadCertificateFiles gives files that cannot be used: one error, before anything listens, that names the file.
func TestBadCertificateFiles(t *testing.T) {
	ca := transporttest.NewCA(t, "root")
	cert, key := ca.Issue(t, "node", transporttest.Leaf{Name: "node"})
	_, otherKey := ca.Issue(t, "other", transporttest.Leaf{Name: "node"})
	expired, expiredKey := ca.Issue(t, "expired", transporttest.Leaf{Name: "node", Life: -time.Minute})
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing.pem")
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ ca, cert, key, want string }{
		"no authorities":      {missing, cert, key, missing},
		"empty authorities":   {empty, cert, key, empty + " holds no certificate"},
		"no certificate":      {ca.File, missing, key, missing},
		"key of another one":  {ca.File, cert, otherKey, "cannot be used"},
		"expired certificate": {ca.File, expired, expiredKey, "has expired at"},
	} {
		s := Settings{Planes: []string{"tls", "quic"}, TLSCA: c.ca, TLSCert: c.cert, TLSKey: c.key, PeerName: "node"}
		all, err := s.Transports(id, nil)
		if err == nil || all != nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(),
			"--tls-ca") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, %v", name, all, err)
		}
	}
}
