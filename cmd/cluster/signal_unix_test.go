//go:build unix

package main

import (
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// patience bounds the waits; it includes the time in which the programs are built.
const patience = 9 * time.Minute

func TestInterruptStopsTheRealCluster(t *testing.T) {
	dir := t.TempDir()
	nothingIsLeft, saw := remains(t)
	const sockets = 1 + 1 + 2 + 2*5 // of etcd, NATS, the frontend, and each worker process
	stdout, stderr := &lockedBuffer{}, &lockedBuffer{}
	ended := make(chan int, 1)
	go func() { // ends with the run
		ended <- run(small(dir, "--request-count=1000000", "--response-plane=quic"), newApp(stdout, stderr))
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !strings.Contains(stderr.String(), "/1000000 done") || saw() < sockets { // a machine that is busy looks seldom
		select {
		case code := <-ended:
			t.Fatalf("exit code %d before the signal\n%s", code, stderr)
		case <-limit:
			t.Fatalf("the load never began\n%s", stderr)
		case <-tick.C:
		}
	}
	sig, named := syscall.SIGHUP, "hangup"
	if signal.Ignored(sig) { // under nohup, which the program minds
		sig, named = syscall.SIGTERM, "terminated"
	}
	for range 2 { // as from GNU timeout: to the process, and to the group that it is in
		if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case code := <-ended:
		if code != cli.ExitFailure || !strings.Contains(stderr.String(), "stopped by signal: "+named) {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	case <-time.After(time.Minute):
		t.Fatalf("the run did not end\n%s", stderr)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	nothingIsLeft(sockets)
	if strings.Contains(stderr.String(), "did not stop cleanly") {
		t.Errorf("a process did not stop by itself\n%s", stderr)
	}
	// The load generator writes what it has, so an interrupted run is not lost.
	r, err := report.Read(filepath.Join(dir, "quic-1"))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Marked(report.MarkPartial) {
		t.Errorf("marks %v", r.Marks)
	}
}
