// Package lab builds and runs the real programs for the tests of this module.
package lab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// Root is the root of the repository.
func Root() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("lab: no source position: built with -trimpath")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..", "..")
}

// Deploy is a path below deploy/.
func Deploy(elem ...string) string {
	return filepath.Join(append([]string{Root(), "deploy"}, elem...)...)
}

// Build makes frontend, mockworker and loadgen in dir from the sources in root, as the images do.
func Build(ctx context.Context, root, dir string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "deploy", "docker", "build.sh"), dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lab: build.sh in %s: %w\n%s", root, err, out)
	}
	return nil
}

// Missing is for what a test needs and this machine does not have: with CI=true that fails, otherwise the test is
// skipped.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// FreePort finds n ports in a row that nobody listens on, over TCP and UDP, below those that kernels hand out by
// themselves.
func FreePort(t testing.TB, n int) int {
	t.Helper()
	for range 200 {
		first := 10000 + rand.IntN(9000)
		if allFree(first, n) {
			return first
		}
	}
	t.Fatalf("lab: no %d free ports in a row", n)
	return 0
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		addr := ":" + strconv.Itoa(port)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return false
		}
		l.Close()
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			return false
		}
		p.Close()
	}
	return true
}

// Eventually calls f until it returns nil; after limit the test fails with its last error.
func Eventually(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
