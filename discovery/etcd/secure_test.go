package etcd

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/laneway-ai/laneway/discovery/discoverytest"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
)

func TestTLS(t *testing.T) {
	cert, key, client := devtest.Certificate(t)
	srv := devtest.Etcd(t, devserver.Options{TLSCert: cert, TLSKey: key})
	reg := open(t, Config{Endpoints: srv.Endpoints(), TLS: client})
	if _, err := reg.Register(within(t), discoverytest.Workers("w", 1, 1)); err != nil {
		t.Fatal(err)
	}
	bare := strings.TrimPrefix(srv.Endpoints()[0], "https://")
	v := discoverytest.Watch(t, open(t, Config{Endpoints: []string{bare}, TLS: client}))
	v.Expect("put w-0", "synced")
	if _, err := New(t.Context(), Config{Endpoints: []string{bare}, TLS: &tls.Config{},
		DialTimeout: 500 * time.Millisecond}); err == nil {
		t.Error("a server whose certificate nobody vouches for is trusted")
	}
}

func TestUserAndPassword(t *testing.T) {
	srv := devtest.Etcd(t)
	cli, ctx := raw(t, srv), within(t)
	steps := []func() error{
		func() error { _, err := cli.UserAdd(ctx, "root", "rootpass"); return err },
		func() error { _, err := cli.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := cli.UserAdd(ctx, "laneway", "right"); return err },
		func() error { _, err := cli.RoleAdd(ctx, "laneway"); return err },
		func() error {
			_, err := cli.RoleGrantPermission(ctx, "laneway", "/laneway/v1/prod/", "/laneway/v1/prod0", 2)
			return err
		},
		func() error { _, err := cli.UserGrantRole(ctx, "laneway", "laneway"); return err },
		func() error { _, err := cli.AuthEnable(ctx); return err },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	cfg := Config{Endpoints: srv.Endpoints(), Namespace: "prod", Username: "laneway", Password: "right",
		DialTimeout: 2 * time.Second}
	reg := open(t, cfg)
	if _, err := reg.Register(within(t), discoverytest.Workers("w", 1, 1)); err != nil {
		t.Fatal(err)
	}
	v := discoverytest.Watch(t, reg)
	v.Expect("put w-0", "synced")

	wrong, none, elsewhere := cfg, cfg, cfg
	wrong.Password = "wrong"
	none.Username, none.Password = "", ""
	elsewhere.Namespace = "other"
	for what, c := range map[string]struct {
		cfg  Config
		want error
	}{
		"a wrong password": {wrong, rpctypes.ErrAuthFailed}, "no user": {none, rpctypes.ErrUserEmpty},
		"a namespace that is not the user's": {elsewhere, rpctypes.ErrPermissionDenied},
	} {
		_, err := New(t.Context(), c.cfg)
		var un *UnreachableError
		if err == nil || errors.As(err, &un) || !strings.Contains(err.Error(), c.want.Error()) {
			t.Errorf("%s: err = %v, want %v", what, err, c.want)
		}
	}
}
