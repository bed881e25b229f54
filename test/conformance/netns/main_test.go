// Package netns tests what needs network namespaces: paths that change under open lanes, and cluster runs in namespaces
// of their own. It needs Linux, root and iproute2; nothing else is installed. Without them the tests skip with the
// reason, and fail when CI=true.
package netns

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/cluster"
	"github.com/laneway-ai/laneway/internal/lab/netns"
)

func TestMain(m *testing.M) {
	if os.Getenv(makerEnv) != "" { // see TestNamespacesOfKilledMaker
		os.Exit(playMaker())
	}
	goleak.VerifyTestMain(m)
}

// need skips, or fails in CI, where namespaces cannot be made.
func need(t *testing.T) {
	t.Helper()
	err := netns.Check()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

var builtPrograms = sync.OnceValues(func() (cluster.Programs, error) {
	return cluster.BuildPrograms(context.Background(), true, func(s string) { fmt.Fprintln(os.Stderr, s) })
})

// programs are the real ones, built from this checkout.
func programs(t *testing.T) cluster.Programs {
	t.Helper()
	p, err := builtPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
