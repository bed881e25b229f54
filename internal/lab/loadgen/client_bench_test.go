package loadgen

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// tickServerEnv makes the test binary the server of BenchmarkClients, so that the client's processor time is its
// process's. Its value is the time between the tokens of a response.
const tickServerEnv = "LANEWAY_TEST_TICK_SERVER"

// tickServer answers each request with one token every itl, from a few goroutines that serve many connections each: the
// timing of a busy frontend at little cost.
func tickServer(itl time.Duration) {
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
			t := time.NewTicker(itl)
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
					ev := fmt.Appendf(buf[:0],
						"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n", tok)
					buf = ev
					st.i++
					last := st.i == st.n
					if last {
						ev = fmt.Appendf(ev,
							"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: "+
								"{\"choices\":[],\"usage\":{\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", st.n)
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
		time.Sleep(itl / shards) // the shards tick one after the other
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
				fmt.Fprintf(conn,
					"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Laneway-Worker: w\r\nTransfer-Encoding: "+
						"chunked\r\n\r\n")
				st := &stream{conn: conn, g: tokentext.New(req.Header.Get("X-Request-Id")), n: n,
					ended: make(chan struct{})}
				add[k%shards] <- st
				<-st.ended
			}
		}()
	}
}

// BenchmarkClients holds the clients against each other: processor time of the client's process per event, against a
// server in another process that sends each of c open responses a token every ITL, 41,000 a second in all. One
// iteration is a round in which each client has one run; rounds go forth and back, so that a drift of the machine meets
// all. Medians are reported, and ranges logged: below 5 rounds they say little.
//
//	go test ./internal/lab/loadgen -run=NONE -bench=Clients -benchtime=6x -timeout=30m
func BenchmarkClients(b *testing.B) {
	var kinds []string
	for _, k := range []string{ClientRing, ClientEpoll, ClientGoroutines} {
		if k != ClientGoroutines && !haveLoops {
			continue
		}
		if k == ClientRing {
			if err := probeRing(); err != nil {
				b.Logf("without the io_uring client: %v", err)
				continue
			}
		}
		kinds = append(kinds, k)
	}
	for _, l := range []benchLoad{{c: 1024, itl: 25 * time.Millisecond, tokens: 200},
		{c: 8192, itl: 200 * time.Millisecond, tokens: 25}} {
		for _, l.tick = range []time.Duration{0, time.Millisecond} {
			b.Run(fmt.Sprintf("c=%d/tick=%v", l.c, l.tick), func(b *testing.B) { benchClients(b, kinds, l) })
		}
	}
}

// benchLoad is what the clients of a benchmark are given. A run takes about 1.5 x tokens x itl.
type benchLoad struct {
	c, tokens int
	itl, tick time.Duration
}

func benchClients(b *testing.B, kinds []string, l benchLoad) {
	if err := cli.NeedFiles(l.c+100, "this benchmark"); err != nil {
		b.Skip(err)
	}
	figures := []string{"cpu-us/event", "late-p99-ms", "gap-p99-ms"}
	got := map[string][][]float64{} // by client, a row a round
	for round := range b.N {
		order := slices.Clone(kinds)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, k := range order {
			got[k] = append(got[k], benchRun(b, k, l))
		}
	}
	for _, k := range kinds {
		for i, f := range figures {
			var v []float64
			for _, row := range got[k] {
				v = append(v, row[i])
			}
			slices.Sort(v)
			b.ReportMetric((v[(len(v)-1)/2]+v[len(v)/2])/2, k+"-"+f)
			b.Logf("%s %s: %.3g to %.3g over %d rounds", k, f, v[0], v[len(v)-1], len(v))
		}
	}
	b.ReportMetric(0, "ns/op") // a round's time is the server's, and says nothing
}

// benchRun is one run against a server of its own.
func benchRun(b *testing.B, kind string, l benchLoad) []float64 {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), tickServerEnv+"="+l.itl.String())
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
	runtime.GC() // what the run before left is not this one's
	before, _ := procstat.ReadCPU(procstat.Self)
	run, err := Run(b.Context(), Config{URL: redact.New("http://" + strings.TrimSpace(addr)), Model: "m", Client: kind,
		Concurrency: l.c, Requests: l.c, OSL: l.tokens,
		Warmup: DefaultWarmup, Tick: l.tick})
	if err != nil {
		b.Fatal(err)
	}
	after, ok := procstat.ReadCPU(procstat.Self)
	if w := run.Raw; w.Errors > 0 || *w.WrongTokens > 0 || !ok || run.Client.Kind != kind {
		b.Fatalf("client %s, raw %+v", run.Client.Kind, w)
	}
	events := run.Raw.Chunks + int64(l.c*l.tokens/2) // and about half the tokens for each warm-up request
	return []float64{float64(after.Sub(before).Total().Microseconds()) / float64(events), *run.Client.ScheduleDelayP99,
		run.Raw.ICL.P99}
}
