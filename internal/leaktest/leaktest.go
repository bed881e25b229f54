// Package leaktest fails a package's tests when they leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// settle is how long goroutines that are on their way out may take; a loaded two-core machine needs seconds.
const settle = 10 * time.Second

// Main runs the tests of a package, then what tidies up after them, and checks that every goroutine that they started has ended. Call it from
// TestMain; it does not return.
func Main(m *testing.M, tidy ...func()) {
	code := m.Run()
	for _, f := range tidy {
		f()
	}
	if code == 0 {
		if leaked := wait(settle); len(leaked) > 0 {
			fmt.Fprintf(os.Stderr, "leaktest: %d goroutines are left after the tests:\n\n%s\n", len(leaked), strings.Join(leaked, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// Check fails t when it ends with more goroutines of this module's making than it began with. It cannot be used in parallel tests.
func Check(t testing.TB) {
	t.Helper()
	before := make(map[string]bool)
	for _, g := range stacks() {
		before[id(g)] = true
	}
	t.Cleanup(func() {
		deadline := time.Now().Add(settle)
		for {
			var leaked []string
			for _, g := range stacks() {
				if !before[id(g)] {
					leaked = append(leaked, g)
				}
			}
			if len(leaked) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("leaktest: %d goroutines are left:\n\n%s", len(leaked), strings.Join(leaked, "\n\n"))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

func wait(d time.Duration) []string {
	deadline := time.Now().Add(d)
	for {
		leaked := stacks()
		if len(leaked) == 0 || time.Now().After(deadline) {
			return leaked
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stacks returns the goroutines that are neither this one nor the runtime's or the testing package's own.
func stacks() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var out []string
	for i, g := range strings.Split(string(buf), "\n\n") {
		if i == 0 || benign(g) {
			continue
		}
		out = append(out, g)
	}
	return out
}

func benign(g string) bool {
	for _, s := range []string{
		"testing.(*T).Run(", "testing.tRunner.func", "testing.runFuzz", "testing.(*M).", "testing.(*F).",
		"os/signal.signal_recv", "os/signal.loop", "runtime.ensureSigM",
		"created by runtime.", "runtime.goexit0", "runtime/pprof.", "internal/synctest.", "testing.(*M).startAlarm",
	} {
		if strings.Contains(g, s) {
			return true
		}
	}
	return false
}

// id is the goroutine's number: "goroutine 12 [running]:" -> "goroutine 12".
func id(g string) string {
	head, _, _ := strings.Cut(g, " [")
	return head
}
