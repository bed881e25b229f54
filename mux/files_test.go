//go:build unix

package mux

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

func TestFileLimitError(t *testing.T) {
	e := &FileLimitError{Limit: 256, Share: 192, Lanes: 512, Nodes: 512, Need: 688, Err: syscall.EMFILE}
	for _, want := range []string{"256 files", "RLIMIT_NOFILE", "at most 192", "512 lanes to 512 nodes", "at least 688", "ulimit -n", "too many open files"} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	if !errors.Is(e, syscall.EMFILE) {
		t.Error("the cause is lost")
	}
}

// What the error says to need is enough, and not much less is.
func TestFileLimitNeed(t *testing.T) {
	for _, c := range []struct{ nodes, lanes int }{{1, 1}, {3, 1}, {100, 1}, {512, 1}, {1, 2}, {7, 4}, {512, 4}, {64, 16}} {
		r := &Receiver{peers: make(map[transport.NodeID]*peer), transports: []transport.Transport{plain{}}}
		r.cfg.Lanes = c.lanes
		for i := range c.nodes {
			id := transport.NodeID{1, byte(i), byte(i >> 8)}
			r.peers[id] = &peer{recv: r, id: id, known: addresses{usable: []Peer{{ID: id, Planes: []PeerPlane{{Plane: transport.PlaneTCP, Endpoints: []string{"h:1"}}}}}}}
		}
		var e *FileLimitError
		if !errors.As(r.fileLimit(nil), &e) || e.Nodes != c.nodes || e.Lanes != c.nodes*c.lanes {
			t.Fatalf("%+v: %+v", c, e)
		}
		fits := func(limit uint64) bool {
			return share(limit, 0) >= int64(c.nodes) && (c.lanes == 1 || share(limit, 1) >= int64(c.nodes*c.lanes))
		}
		if !fits(e.Need) || e.Need > 16 && fits(e.Need-12) {
			t.Errorf("%+v: need %d, with which it fits: %t, and with 12 less: %t", c, e.Need, fits(e.Need), fits(e.Need-12))
		}
	}
}

type plain struct{ transport.Transport }

func (plain) Plane() string { return transport.PlaneTCP }

// fewFiles is the limit of the frontend process, and fewNodes how many nodes it is told of.
const (
	fewFiles = 40
	fewNodes = 50
)

// fewReport is what the frontend process says of itself.
type fewReport struct {
	Up       int
	Errs     map[string]int
	Log      []string
	Complete int // streams that were served meanwhile, over a connection that was opened meanwhile
	AllUp    int // after the limit was raised
}

// lineLog keeps lines of a log.
type lineLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

// setFileLimit sets this process's limit.
func setFileLimit(t *testing.T, n int) {
	t.Helper()
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	r.Cur = uint64(n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
}

// childFewFiles is a frontend that may open fewer files than its lanes need.
func childFewFiles(t *testing.T, plane string) {
	var workers []remoteWorker
	if err := json.NewDecoder(os.Stdin).Decode(&workers); err != nil {
		t.Fatal(err)
	}
	setFileLimit(t, fewFiles)
	log := &lineLog{}
	tr, id := stormNode(t, plane)
	defer tr.Close()
	recv, err := NewReceiver(Config{ID: id, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))}, tr)
	if err != nil {
		t.Fatal(err)
	}
	defer recv.Close()
	for _, w := range workers {
		if err := recv.AddPeer(Peer{ID: w.ID, Planes: []PeerPlane{{Plane: plane, Endpoints: w.Endpoints}}}); err != nil {
			t.Fatal(err)
		}
	}
	up := func() (n int) {
		for _, p := range recv.Peers() {
			if p.Up {
				n++
			}
		}
		return n
	}
	report := fewReport{Errs: make(map[string]int)}
	waitFor(t, "all that can be reached", func() bool { return int64(up()) == share(fewFiles, 0) })
	time.Sleep(3 * time.Second) // of dialling on, with nothing to show for it
	report.Up = up()
	var one remoteWorker
	for _, p := range recv.Peers() {
		if p.Up {
			for _, w := range workers {
				if w.ID == p.ID {
					one = w
				}
			}
		} else if p.Err != nil {
			report.Errs[p.Err.Error()]++
		}
	}
	l := startLoad(t, recv, one, 4, remoteRequest{Records: 5, Size: 64, Every: time.Millisecond})
	l.done.Wait()
	report.Complete = l.Ends["complete"]
	log.mu.Lock()
	report.Log = append(report.Log, log.lines...)
	log.mu.Unlock()
	setFileLimit(t, 4*fewNodes)
	waitFor(t, "all, with a higher limit", func() bool { return up() == fewNodes })
	report.AllUp = up()
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestFewFiles: a frontend whose limit of open files is below what its lanes need reaches as many workers as it can, goes on
// serving, and says once what is missing.
func TestFewFiles(t *testing.T) {
	for _, plane := range []string{transport.PlaneTCP, transport.PlaneQUIC} {
		t.Run("plane="+plane, func(t *testing.T) {
			t.Parallel()
			requests, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var workers []remoteWorker
			byID := make(map[transport.NodeID]*Sender)
			for range fewNodes {
				tr, id := stormNode(t, plane)
				ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
				if err != nil {
					t.Fatal(err)
				}
				s, err := NewSender(Config{ID: id})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Serve(ln); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close(); _ = tr.Close() })
				byID[id] = s
				workers = append(workers, remoteWorker{ID: id, Endpoints: []string{ln.Endpoints()[0].String()}, Requests: requests.Addr().String()})
			}
			var served sync.WaitGroup
			t.Cleanup(func() { _ = requests.Close(); served.Wait() })
			served.Go(func() {
				for {
					conn, err := requests.Accept()
					if err != nil {
						return
					}
					served.Go(func() { takeAnyRequests(t, byID, conn) })
				}
			})
			c := startChild(t, "few files", plane)
			if err := json.NewEncoder(c.in).Encode(workers); err != nil {
				t.Fatal(err)
			}
			var r fewReport
			if err := c.out.Decode(&r); err != nil {
				t.Fatalf("the frontend does not report: %v: %s", err, c.log.String())
			}
			if want := int(share(fewFiles, 0)); r.Up != want || r.Complete != 4 || r.AllUp != fewNodes {
				t.Errorf("%d workers were reached, expected %d; %d streams of 4 complete; %d reached with a higher limit", r.Up, want, r.Complete, r.AllUp)
			}
			for text := range r.Errs {
				if !strings.Contains(text, fmt.Sprintf("may open %d files (RLIMIT_NOFILE)", fewFiles)) || !strings.Contains(text, fmt.Sprintf("%d lanes to %d nodes need a limit of at least ", fewNodes, fewNodes)) {
					t.Errorf("a worker that is not reached has the error %s", text)
				}
			}
			if len(r.Errs) != 1 {
				t.Errorf("%d different errors", len(r.Errs))
			}
			if len(r.Log) != 1 || !strings.Contains(r.Log[0], "need a limit of at least") {
				t.Errorf("the log has %d lines: %s", len(r.Log), r.Log)
			}
		})
	}
}

// takeAnyRequests is takeRequests for several nodes of this process.
func takeAnyRequests(t *testing.T, nodes map[transport.NodeID]*Sender, conn net.Conn) {
	defer conn.Close()
	in := json.NewDecoder(conn)
	for {
		var r remoteRequest
		if in.Decode(&r) != nil {
			return
		}
		answer := "no node has these terms\n"
		for _, s := range nodes {
			out, err := s.Attach(r.Terms)
			if err != nil {
				continue
			}
			answer = "\n"
			go serveRequest(t, out, r) // ends with its stream
			break
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}
