package frontend

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkOutPath measures what an event costs this process, from the lane's reader to the kernel, when the request's
// goroutine is woken for it, when the lane writes it, and when the lane has io_uring write all that a read brought. The
// clients are another process. Read us/event, which is CPU time: the rate is fixed.
//
//	go test -run '^$' -bench OutPath -benchtime 50000x -count 3 ./internal/frontend
func BenchmarkOutPath(b *testing.B) {
	for _, path := range []OutPath{OutPull, OutInline, OutRing} {
		if path == OutRing {
			needRing(b)
		}
		b.Run(string(path), func(b *testing.B) { benchOutPath(b, path) })
	}
}

const (
	benchLanes   = 8
	benchBatch   = 16 // streams that one read of a lane brings a record for
	benchStreams = 512
	benchEvery   = 20 * time.Millisecond // between two records of a stream
	benchClient  = "LANEWAY_TEST_CLIENT" // address of the server; its process opens benchStreams streams
)

func benchOutPath(b *testing.B, path OutPath) {
	var mu sync.Mutex
	var streams []*paced
	all := make(chan struct{})
	s, err := New(Config{OutPath: path, Backend: &scripted{models: []string{"m"},
		open: func(context.Context, Call) (Stream, error) {
			p := newPaced()
			mu.Lock()
			defer mu.Unlock()
			if streams = append(streams, p); len(streams) == benchStreams {
				close(all)
			}
			return p, nil
		}}})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() { s.Close(); <-served }()
	clients := exec.Command(os.Args[0])
	clients.Env = append(os.Environ(), benchClient+"="+l.Addr().String())
	clients.Stderr = os.Stderr
	if err := clients.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { clients.Process.Kill(); clients.Wait() }()
	select {
	case <-all:
	case <-time.After(patience):
		b.Fatal("not all clients came")
	}

	rounds := max(b.N/benchStreams, 2)
	var lanes sync.WaitGroup
	before := cpuTime()
	for lane := range benchLanes {
		mine := streams[lane*benchStreams/benchLanes : (lane+1)*benchStreams/benchLanes]
		lanes.Go(func() {
			tick := time.NewTicker(benchEvery * benchBatch / time.Duration(len(mine)))
			defer tick.Stop()
			pass := new(readPass)
			for range rounds {
				for i := 0; i < len(mine); i += benchBatch {
					<-tick.C
					for _, p := range mine[i : i+benchBatch] {
						p.deliver(pass)
					}
					pass.end()
				}
			}
		})
	}
	lanes.Wait()
	b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/1e3/float64(rounds*benchStreams), "us/event")
	b.ReportMetric(0, "ns/op") // it is the pace
	for _, p := range streams {
		p.finish()
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// paced is a SinkStream of the same record again and again, with no cost of its own beyond what the plane has: a lock
// and a wake.
type paced struct {
	*play
	mu     sync.Mutex
	sink   func(Pass, [][]byte, error) bool
	pulled bool
	ready  int
	ended  bool
	wake   chan struct{}
	recs   [][]byte
}

func newPaced() *paced {
	p := &paced{play: newPlay(), ready: 1, wake: make(chan struct{}, 1)}
	for range 64 {
		p.recs = append(p.recs, []byte(" token"))
	}
	return p
}

func (p *paced) deliver(pass *readPass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = min(p.ready+1, len(p.recs))
	if p.sink != nil && !p.pulled {
		n := p.ready
		p.mu.Unlock()
		took := p.sink(pass, p.recs[:n], nil)
		p.mu.Lock()
		if p.pulled = !took; took {
			p.ready = 0
			return
		}
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *paced) OnRecords(sink func([][]byte, error) bool) {
	p.OnPass(func(_ Pass, recs [][]byte, err error) bool { return sink(recs, err) })
}

func (p *paced) OnPass(sink func(Pass, [][]byte, error) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sink, p.pulled = sink, true
}

func (p *paced) NextBatch(ctx context.Context) ([][]byte, error) {
	for {
		p.mu.Lock()
		n := p.ready
		p.ready = 0
		ended, sinks := p.ended, p.sink != nil
		if n == 0 && sinks {
			p.pulled = false
		}
		p.mu.Unlock()
		switch {
		case n > 0:
			return p.recs[:n], nil
		case ended:
			return nil, io.EOF
		case sinks:
			return nil, nil
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (p *paced) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// runClients is the clients' process: it reads until it is killed. It polls, at the records' pace: clients that are
// woken for each event would have their wakes, on a loopback, charged to the server, and those are the same for all out
// paths.
func runClients(addr string) {
	var fds []int
	for range benchStreams {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
			len(chatStream), chatStream)
		f, err := conn.(*net.TCPConn).File() // a descriptor that the runtime does not watch
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fd, err := syscall.Dup(int(f.Fd()))
		if err == nil {
			err = syscall.SetNonblock(fd, true)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		f.Close()
		conn.Close()
		fds = append(fds, fd)
	}
	buf := make([]byte, 4096)
	for tick := time.Tick(benchEvery); ; <-tick {
		for _, fd := range fds {
			syscall.Read(fd, buf)
		}
	}
}
