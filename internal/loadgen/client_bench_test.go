package loadgen

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/cli"
	"github.com/laneway-ai/laneway/internal/procstat"
	"github.com/laneway-ai/laneway/internal/tokentext"
)

// tickServerEnv makes the test binary the server of BenchmarkClient, so that the client's processor time is its process's.
const tickServerEnv = "LANEWAY_TEST_TICK_SERVER"

const benchITL = 200 * time.Millisecond

// tickServer answers each request with one token every benchITL, from a few goroutines that serve many connections each: the timing of a
// busy frontend at little cost.
func tickServer() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	type stream struct {
		conn  net.Conn
		g     tokentext.Gen
		i, n  int
		ended chan struct{}
	}
	const shards = 16
	var add [shards]chan *stream
	for s := range shards {
		add[s] = make(chan *stream, 1024)
		go func() { // lives as long as the process
			var live []*stream
			var buf, tok []byte
			t := time.NewTicker(benchITL)
			for {
				select {
				case st := <-add[s]:
					live = append(live, st)
					continue
				case <-t.C:
				}
				keep := live[:0]
				for _, st := range live {
					tok = st.g.Append(tok[:0], st.i)
					ev := fmt.Appendf(buf[:0], "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n", tok)
					buf = ev
					st.i++
					last := st.i == st.n
					if last {
						ev = fmt.Appendf(ev, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", st.n)
					}
					out := fmt.Appendf(nil, "%x\r\n%s\r\n", len(ev), ev)
					if last {
						out = append(out, "0\r\n\r\n"...)
					}
					st.conn.Write(out)
					if last {
						close(st.ended)
					} else {
						keep = append(keep, st)
					}
				}
				live = keep
			}
		}()
		time.Sleep(benchITL / shards) // the shards tick one after the other
	}
	for k := 0; ; k++ {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() { // ends with its connection
			r := bufio.NewReaderSize(conn, 8<<10)
			for {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				body := make([]byte, req.ContentLength)
				for n := 0; n < len(body); {
					m, err := req.Body.Read(body[n:])
					if n += m; err != nil && n < len(body) {
						return
					}
				}
				var n int
				_, rest, _ := strings.Cut(string(body), `"max_tokens":`)
				fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Laneway-Worker: w\r\nTransfer-Encoding: chunked\r\n\r\n")
				st := &stream{conn: conn, g: tokentext.New(req.Header.Get("X-Request-Id")), n: n, ended: make(chan struct{})}
				add[k%shards] <- st
				<-st.ended
			}
		}()
	}
}

// BenchmarkClient measures the client's processor time per event against a server in another process that sends each of c open
// responses a token every 200 ms. One iteration is one measured request of 25 tokens; use -benchtime=16384x.
func BenchmarkClient(b *testing.B) {
	for _, kind := range []string{ClientEpoll, ClientGoroutines} {
		for _, c := range []int{1024, 8192} {
			b.Run(fmt.Sprintf("client=%s/c=%d", kind, c), func(b *testing.B) { benchClient(b, kind, c) })
		}
	}
}

func benchClient(b *testing.B, kind string, c int) {
	if err := cli.NeedFiles(c+100, "this benchmark"); err != nil {
		b.Skip(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tickServerEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	before, _ := procstat.ReadCPU(procstat.Self)
	b.ResetTimer()
	run, err := Run(b.Context(), Config{URL: "http://" + strings.TrimSpace(addr), Model: "m", Client: kind, Concurrency: c, Requests: max(b.N, 2), OSL: 25, Warmup: DefaultWarmup})
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	after, ok := procstat.ReadCPU(procstat.Self)
	if w := run.Raw; w.Errors > 0 || *w.WrongTokens > 0 || !ok {
		b.Fatalf("raw %+v", w)
	}
	events := run.Raw.Chunks + int64(c)*25/2 // and about half the tokens for each warm-up request
	b.ReportMetric(float64(after.Sub(before).Total().Microseconds())/float64(events), "cpu-us/event")
	b.ReportMetric(*run.Client.ScheduleDelayP99, "late-p99-ms")
	b.ReportMetric(run.Raw.ICL.P99, "gap-p99-ms")
}
