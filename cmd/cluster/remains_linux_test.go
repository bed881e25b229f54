package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// remains watches the sockets that child processes listen on, and gives them a directory of their own for temporary
// files. What it returns fails the test unless all of both are gone, and unless at least so many sockets were seen.
// Sockets are told by the kernel's number, so other programs do not matter. saw says how many were seen so far.
func remains(t *testing.T) (check func(atLeast int), saw func() int) {
	t.Helper()
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var mu sync.Mutex
	seen := map[uint64]string{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // ends with check, or with the test
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			for _, pid := range children(t) {
				found := listening(t, pid)
				mu.Lock()
				for n, what := range found {
					seen[n] = what + " of process " + pid
				}
				mu.Unlock()
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	end := sync.OnceFunc(func() { close(stop); wg.Wait() })
	t.Cleanup(end)
	saw = func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	return func(atLeast int) {
		t.Helper()
		end()
		if len(seen) < atLeast {
			t.Errorf("%d listening sockets of child processes were seen, expected %d or more: %v", len(seen), atLeast,
				seen)
		}
		for n, what := range listening(t, "self") {
			if child := seen[n]; child != "" {
				t.Errorf("%s was seen as %s and is still there", what, child)
			}
		}
		entries, err := os.ReadDir(tmp)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			t.Errorf("%s is left in the directory for temporary files", e.Name())
		}
	}, saw
}

// listening are the TCP listeners and UDP sockets, by number, of a process; of its whole network namespace for "self".
func listening(t *testing.T, pid string) map[uint64]string {
	t.Helper()
	fs, err := procfs.NewFS("/proc/" + pid)
	if err != nil {
		return nil // it has ended
	}
	out := map[uint64]string{}
	//lint:ignore SA1019 A test reads /proc; netlink would be one more module.
	for what, read := range map[string]func() (procfs.NetTCP, error){"tcp": fs.NetTCP, "tcp6": fs.NetTCP6} {
		lines, err := read()
		if err != nil {
			continue
		}
		for _, l := range lines {
			if l.St == 0x0A {
				out[l.Inode] = fmt.Sprintf("%s port %d", what, l.LocalPort)
			}
		}
	}
	for what, read := range map[string]func() (procfs.NetUDP, error){"udp": fs.NetUDP, "udp6": fs.NetUDP6} {
		lines, err := read()
		if err != nil {
			continue
		}
		for _, l := range lines {
			out[l.Inode] = fmt.Sprintf("%s port %d", what, l.LocalPort)
		}
	}
	delete(out, 0) // sockets that belong to nobody any more
	if pid == "self" {
		return out
	}
	own := map[uint64]string{}
	links, err := filepath.Glob("/proc/" + pid + "/fd/*")
	if err != nil {
		t.Error(err)
	}
	for _, l := range links {
		to, err := os.Readlink(l)
		if err != nil || !strings.HasPrefix(to, "socket:[") {
			continue
		}
		var n uint64
		if _, err := fmt.Sscanf(to, "socket:[%d]", &n); err == nil && out[n] != "" {
			own[n] = out[n]
		}
	}
	return own
}
