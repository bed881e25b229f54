package tcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
)

// The test binary runs again as the process that may open few files; it ends when its standard input does.
const fewFilesChild = "LANEWAY_TCP_TEST_FEW_FILES"

// fewFilesState is what the child says of itself, once for each line of its input. The first says the endpoint.
type fewFilesState struct {
	Endpoint     string
	Accepted     int64
	AcceptErrors uint64
	Log          []string
}

func TestFewFilesChild(t *testing.T) {
	plane := os.Getenv(fewFilesChild)
	if plane == "" {
		return // only for TestAcceptWithFewFiles
	}
	var mu sync.Mutex
	var out bytes.Buffer
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := New(Config{TLS: plane == transport.PlaneTLS, Identity: id,
		Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	r.Cur = uint64(len(open) + 4)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int64
	var lanes sync.WaitGroup
	lanes.Go(func() {
		for {
			c, err := ln.Accept(t.Context())
			if err != nil {
				return
			}
			accepted.Add(1)
			lanes.Go(func() { // until the peer closes it
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			})
		}
	})
	enc := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for {
		mu.Lock()
		text := strings.TrimSpace(out.String())
		mu.Unlock()
		st := fewFilesState{Endpoint: ln.Endpoints()[0].String(), Accepted: accepted.Load(),
			AcceptErrors: tr.Counters().AcceptErrors}
		if text != "" {
			st.Log = strings.Split(text, "\n")
		}
		if err := enc.Encode(st); err != nil || !lines.Scan() {
			break
		}
	}
	_ = tr.Close()
	lanes.Wait()
}

// A process that has no descriptor left for further lanes tries again more and more seldom, logs it once, and accepts
// those who wait as soon as lanes end.
func TestAcceptWithFewFiles(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestFewFilesChild$")
	cmd.Env = append(os.Environ(), fewFilesChild+"="+transport.PlaneTCP)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	outPipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, outPipe)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the child: %v: %s", err, log.String())
		}
	})
	dec := json.NewDecoder(outPipe)
	hear := func() (st fewFilesState) {
		t.Helper()
		if err := dec.Decode(&st); err != nil {
			t.Fatalf("the child says nothing: %v: %s", err, log.String())
		}
		return st
	}
	ask := func() fewFilesState {
		t.Helper()
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		return hear()
	}
	until := func(what string, ok func(fewFilesState) bool) fewFilesState {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			st := ask()
			if ok(st) {
				return st
			}
			if time.Now().After(deadline) {
				t.Fatalf("not within a minute: %s: %+v", what, st)
			}
		}
	}
	endpoint := hear().Endpoint
	const dials = 12
	var conns []net.Conn
	for range dials {
		c, err := net.Dial("tcp", endpoint) // the kernel takes what the process cannot
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	began := time.Now()
	st := until("accept errors", func(st fewFilesState) bool { return st.AcceptErrors >= 8 })
	if most := uint64(16 + time.Since(began)/backoffMost); st.AcceptErrors > most {
		t.Errorf("%d accept errors in %v: it does not back off", st.AcceptErrors, time.Since(began))
	}
	if len(st.Log) != 1 || !strings.Contains(st.Log[0], "too many open files") ||
		!strings.Contains(st.Log[0], "ulimit -n") {
		t.Errorf("the log says: %q", st.Log)
	}
	few := st.Accepted
	if few < 1 || few > 6 {
		t.Fatalf("%d lanes were accepted", few)
	}
	for _, c := range conns { // those that were accepted first make room for the others
		_ = c.Close()
	}
	st = until("all accepted", func(st fewFilesState) bool { return st.Accepted == dials })
	if last := st.Log[len(st.Log)-1]; !strings.Contains(last, "accepting lanes again") {
		t.Errorf("the log ends with %q", last)
	}
	// Closing happens while others are being accepted, so there may be another episode or two; never a line for each
	// error.
	if len(st.Log) > 2*dials {
		t.Errorf("the log has %d lines", len(st.Log))
	}
}
