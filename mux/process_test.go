//go:build unix

package mux

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Tests between processes run this test binary again as a worker or a frontend: childRole in the environment says
// which, and TestChild is it. A child ends when its standard input ends, so also when this process dies.
const (
	childRole  = "LANEWAY_MUX_TEST_CHILD"
	childPlane = "LANEWAY_MUX_TEST_PLANE"
)

// remoteWorker is how a worker process says that it is ready: the first line of its output.
type remoteWorker struct {
	ID        transport.NodeID
	Endpoints []string
	Requests  string // where it takes requests, in place of a message bus
}

// remoteRequest asks a worker process for one stream.
type remoteRequest struct {
	Terms   []byte
	Stream  uint64
	Records int
	Size    int
	Every   time.Duration
}

// TestChild is the main function of child processes. Without a role it has nothing to do.
func TestChild(t *testing.T) {
	plane := os.Getenv(childPlane)
	switch os.Getenv(childRole) {
	case "worker":
		childWorker(t, plane)
	case "frontend":
		childFrontend(t, plane)
	}
}

// childWorker serves requests until its input ends.
func childWorker(t *testing.T, plane string) {
	tr, id := newNode(t, plane)
	defer tr.Close()
	ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 4)
	if err != nil {
		t.Fatal(err)
	}
	send, err := NewWorkerNode(Config{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	defer send.Close()
	if err := send.Serve(ln); err != nil {
		t.Fatal(err)
	}
	requests, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	ready := remoteWorker{ID: id, Requests: requests.Addr().String()}
	for _, a := range ln.Endpoints() {
		ready.Endpoints = append(ready.Endpoints, a.String())
	}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := requests.Accept()
			if err != nil {
				return
			}
			go takeRequests(t, send, conn)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// takeRequests serves the requests of one connection and answers each with an empty line or an error.
func takeRequests(t *testing.T, send *WorkerNode, conn net.Conn) {
	defer conn.Close()
	in := json.NewDecoder(conn)
	for {
		var r remoteRequest
		if in.Decode(&r) != nil {
			return
		}
		out, err := send.Attach(r.Terms)
		answer := "\n"
		if err != nil {
			answer = err.Error() + "\n"
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
		if out != nil {
			go serveRequest(t, out, r)
		}
	}
}

func serveRequest(t *testing.T, out *OutStream, r remoteRequest) {
	pace := time.NewTicker(r.Every)
	defer pace.Stop()
	var rec []byte
	for i := range r.Records {
		rec = makeRecord(rec, r.Stream, i, r.Size)
		if out.Send(t.Context(), rec) != nil {
			return
		}
		<-pace.C
	}
	_ = out.Complete(nil)
}

// remoteLoad is streams from one worker process.
type remoteLoad struct {
	requests net.Conn
	records  int
	done     sync.WaitGroup

	mu      sync.Mutex
	started int // streams with a record
	Ends    map[string]int
	Wrong   []string
	last    time.Time // of the ends
}

// addWorker has a FrontendNode dial a worker process.
func addWorker(t *testing.T, recv *FrontendNode, plane string, w remoteWorker) {
	t.Helper()
	if err := recv.AddPeer(Peer{ID: w.ID, Planes: []PeerPlane{{Plane: plane, Endpoints: w.Endpoints}}}); err != nil {
		t.Fatal(err)
	}
	if err := recv.Await(t.Context(), w.ID); err != nil {
		t.Fatal(err)
	}
}

// startLoad opens streams and consumes them.
func startLoad(t *testing.T, recv *FrontendNode, w remoteWorker, streams int, r remoteRequest) *remoteLoad {
	t.Helper()
	conn, err := net.Dial("tcp", w.Requests)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	l := &remoteLoad{requests: conn, records: r.Records, Ends: make(map[string]int)}
	ask, answers := json.NewEncoder(conn), bufio.NewReader(conn)
	for i := range streams {
		in, err := recv.Mint(t.Context(), w.ID, MintOptions{})
		if err != nil {
			t.Fatal(err)
		}
		id := uint64(i)
		r.Terms, r.Stream = in.Terms(), id
		l.done.Add(1)
		if i%2 == 0 {
			got := 0
			in.onRecords(func(recs [][]byte, end *End) bool {
				for _, rec := range recs {
					l.took(rec, id, got)
					got++
				}
				if end != nil {
					l.ended(*end, got)
				}
				return true
			})
		} else {
			go l.pull(t, in, id)
		}
		if err := ask.Encode(r); err != nil {
			t.Fatal(err)
		}
		if answer, err := answers.ReadString('\n'); err != nil || answer != "\n" {
			t.Fatalf("the worker refuses: %q, %v", answer, err)
		}
	}
	return l
}

func (l *remoteLoad) pull(t *testing.T, in *InStream, id uint64) {
	defer in.Close()
	for n := 0; ; n++ {
		rec, err := in.Next(t.Context())
		if err != nil {
			l.ended(*in.End(), n)
			return
		}
		l.took(rec, id, n)
	}
}

func (l *remoteLoad) took(rec []byte, id uint64, i int) {
	err := checkRecord(rec, id, i)
	if err == nil && i > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i == 0 {
		l.started++
	}
	if err != nil && len(l.Wrong) < 5 {
		l.Wrong = append(l.Wrong, err.Error())
	}
}

func (l *remoteLoad) ended(end End, got int) {
	l.mu.Lock()
	l.Ends[end.Type.String()]++
	if end.Type == EndComplete && got != l.records {
		l.Wrong = append(l.Wrong, "a complete stream has not all its records")
	}
	l.last = time.Now()
	l.mu.Unlock()
	l.done.Done() // twice for a stream: panics
}

func (l *remoteLoad) allStarted(streams int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started == streams
}

// check waits for all streams and wants them to have ended so.
func (l *remoteLoad) check(t *testing.T, what, end string, streams int) {
	t.Helper()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Ends[end] != streams || len(l.Wrong) > 0 {
		t.Errorf("%s: %d streams should have ended %s, they ended %v; wrong: %v", what, streams, end, l.Ends, l.Wrong)
	}
}

// stopLoad is what a process that will be stopped serves: 3 s of it, more than a window on each stream.
var stopLoad = remoteRequest{Records: 150, Size: 1000, Every: 20 * time.Millisecond}

const stopStreams = 50

// childFrontend takes a worker from its input, connects, puts load on it at the next line, and reports.
func childFrontend(t *testing.T, plane string) {
	in := json.NewDecoder(os.Stdin)
	var w remoteWorker
	if err := in.Decode(&w); err != nil {
		t.Fatal(err)
	}
	tr, id := newNode(t, plane)
	defer tr.Close()
	recv, err := NewFrontendNode(Config{ID: id, Lanes: 2}, tr)
	if err != nil {
		t.Fatal(err)
	}
	defer recv.Close()
	addWorker(t, recv, plane, w)
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode("connected"); err != nil {
		t.Fatal(err)
	}
	var line string
	if err := in.Decode(&line); err != nil {
		t.Fatal(err)
	}
	l := startLoad(t, recv, w, stopStreams, stopLoad)
	waitFor(t, "records on every stream", func() bool { return l.allStarted(stopStreams) })
	if err := out.Encode("started"); err != nil {
		t.Fatal(err)
	}
	l.done.Wait()
	if err := out.Encode(l); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// child is a child process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	log bytes.Buffer
}

func startChild(t *testing.T, role, plane string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], "-test.run=^TestChild$")}
	c.cmd.Env = append(os.Environ(), childRole+"="+role, childPlane+"="+plane)
	c.cmd.Stderr = &c.log
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		if t.Failed() && c.log.Len() > 0 {
			t.Logf("%s: %s", role, c.log.String())
		}
	})
	return c
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func startWorker(t *testing.T, plane string) (*child, remoteWorker) {
	t.Helper()
	c := startChild(t, "worker", plane)
	var w remoteWorker
	if err := c.out.Decode(&w); err != nil {
		t.Fatalf("the worker does not come up: %v: %s", err, c.log.String())
	}
	return c, w
}

// newFrontend is a frontend in this process.
func newFrontend(t *testing.T, plane string, resume time.Duration) *FrontendNode {
	t.Helper()
	tr, id := newNode(t, plane)
	recv, err := NewFrontendNode(Config{ID: id, Lanes: 2, ResumeTimeout: resume}, tr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = recv.Close()
		_ = tr.Close()
		checkEmpty(t, "frontend", recv.Stats())
	})
	return recv
}
