package deploytest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
)

// update makes the tests write anew what is derived from other files.
var update = flag.Bool("update", false, "write derived files anew")

// binDir holds the programs, built as the images' are.
var binDir string

func bin(name string) string { return filepath.Join(binDir, name) }

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "laneway-deploy-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Other users run what is in it.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	if err := lab.Build(ctx, lab.Root(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { os.RemoveAll(dir); os.Exit(code) }))
}
