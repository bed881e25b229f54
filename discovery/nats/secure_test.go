package nats

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/discoverytest"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

// works serves a worker and delivers to it.
func works(t *testing.T, cfg Config) {
	t.Helper()
	d := open(t, cfg)
	if _, err := d.Serve(within(t), discoverytest.Worker("w", 1), accept); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Deliver(within(t), "w", discovery.Request{ID: "1"}); err != nil || r.Answer != discovery.Accepted {
		t.Errorf("%+v, %v", r, err)
	}
}

func refused(t *testing.T, cfg Config) {
	t.Helper()
	d, err := New(t.Context(), cfg)
	if err == nil {
		d.Close()
		t.Error("the server let it in")
		return
	}
	if !strings.Contains(err.Error(), "Config.URL") {
		t.Errorf("err = %v", err)
	}
}

func TestTLS(t *testing.T) {
	cert, key, client := devtest.Certificate(t)
	srv := devtest.NATS(t, devserver.Options{TLSCert: cert, TLSKey: key})
	works(t, Config{URL: srv.URL(), TLS: client})
	refused(t, Config{URL: srv.URL()})
}

func TestUserAndPassword(t *testing.T) {
	srv := devtest.NATS(t, devserver.Options{User: "laneway", Password: "right"})
	works(t, Config{URL: srv.URL(), User: "laneway", Password: "right"})
	works(t, Config{URL: strings.Replace(srv.URL(), "://", "://laneway:right@", 1)})
	refused(t, Config{URL: srv.URL(), User: "laneway", Password: "wrong"})
	refused(t, Config{URL: srv.URL()})
}

func TestNKey(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	srv := devtest.NATS(t, devserver.Options{NKey: public})
	works(t, Config{URL: srv.URL(), NKeySeed: file})
	refused(t, Config{URL: srv.URL()})
}

func TestSeveralServers(t *testing.T) {
	first, second := devtest.NATS(t), devtest.NATS(t)
	d := open(t, Config{URL: first.URL() + "," + second.URL()})
	if _, err := d.Serve(within(t), discoverytest.Worker("w", 1), accept); err != nil {
		t.Fatal(err)
	}
	alive := map[string]*devserver.Server{first.URL(): first, second.URL(): second}
	alive[d.nc.ConnectedUrl()].Kill()
	ctx := within(t)
	for {
		r, err := d.Deliver(ctx, "w", discovery.Request{})
		if err == nil && r.Answer == discovery.Accepted {
			return
		}
		if !errors.Is(err, discovery.ErrUnavailable) && !errors.Is(err, discovery.ErrNoResponders) {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
