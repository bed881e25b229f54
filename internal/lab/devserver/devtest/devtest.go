// Package devtest gives tests real etcd and NATS servers that end with the test.
package devtest

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/devserver"
)

// Etcd starts an etcd server that ends with the test. At most one Options may be given.
func Etcd(t testing.TB, opts ...devserver.Options) *devserver.Server {
	t.Helper()
	return start(t, devserver.StartEtcd, opts)
}

// NATS starts a NATS server that ends with the test. At most one Options may be given.
func NATS(t testing.TB, opts ...devserver.Options) *devserver.Server {
	t.Helper()
	return start(t, devserver.StartNATS, opts)
}

func start(t testing.TB, run func(context.Context, devserver.Options) (*devserver.Server, error),
	opts []devserver.Options) *devserver.Server {
	t.Helper()
	var o devserver.Options
	switch len(opts) {
	case 0:
	case 1:
		o = opts[0]
	default:
		t.Fatalf("devtest: %d Options, expected at most one", len(opts))
	}
	if o.Log == nil {
		// Straight to stderr: a build takes minutes, and t.Log shows nothing before the test ends.
		o.Log = func(s string) { fmt.Fprintln(os.Stderr, "devtest: "+s) }
	}
	s, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() && s.LogTail() != "" {
			t.Logf("log of %s:\n%s", s.Kind(), s.LogTail())
		}
	})
	return s
}
