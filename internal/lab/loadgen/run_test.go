package loadgen

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// load runs cfg against the server and checks the run directory.
func load(t *testing.T, s *server, cfg Config) (*report.Run, []report.Row) {
	t.Helper()
	return loadCtx(t, t.Context(), s, cfg)
}

func loadCtx(t *testing.T, ctx context.Context, s *server, cfg Config) (*report.Run, []report.Row) {
	t.Helper()
	return loadURL(t, ctx, s.URL, cfg)
}

func loadURL(t *testing.T, ctx context.Context, url string, cfg Config) (*report.Run, []report.Row) {
	t.Helper()
	cfg.URL, cfg.Dir = redact.New(url), t.TempDir()
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	run, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	rows, bad, err := report.ReadRows(cfg.Dir)
	if err != nil || len(bad) > 0 {
		t.Fatalf("rows: %v %v", bad, err)
	}
	back, err := report.Read(cfg.Dir)
	if err != nil || back.ID != run.ID {
		t.Fatalf("run.json: %v %v", back, err)
	}
	// A run of a few milliseconds is over before anything is sampled.
	if run.Raw != nil && run.Raw.Requests > 1 && run.Raw.EndS > 0.2 && cfg.OSL > 1 {
		if err := report.Check(cfg.Dir); err != nil {
			t.Errorf("check: %v", err)
		}
	}
	return run, rows
}

func phases(rows []report.Row) (warm, measured int) {
	for i := range rows {
		if rows[i].Phase == report.PhaseWarmup {
			warm++
		} else {
			measured++
		}
	}
	return warm, measured
}

func TestClosedLoop(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, normal(20*time.Millisecond, 2*time.Millisecond))
		run, rows := load(t, s, Config{Client: client, Concurrency: 8, Requests: 40, OSL: 12, ISL: 30,
			Warmup: DefaultWarmup})
		warm, measured := phases(rows)
		if warm != 8 || measured != 40 || s.n.Load() != 48 {
			t.Fatalf("%d warm-up and %d measured rows, the server saw %d", warm, measured, s.n.Load())
		}
		if run.Client.Kind != client {
			t.Errorf("client %q", run.Client.Kind)
		}
		if most := s.most.Load(); most != 8 {
			t.Errorf("%d requests were open at most, want 8", most)
		}
		w := run.Raw
		if w.Requests != 40 || w.Errors != 0 || w.WrongTokens == nil || *w.WrongTokens != 0 || w.Audited != 40 ||
			*w.OutputTokens != 40*12 || w.Chunks != 40*12 {
			t.Errorf("raw window %+v", w)
		}
		lens := map[int]bool{}
		ids := map[string]bool{}
		for i := range rows {
			r := &rows[i]
			if ids[r.ID] {
				t.Errorf("id %s twice", r.ID)
			}
			ids[r.ID] = true
			if !r.OK() || r.Status != 200 || r.Wrong != 0 || r.Worker == "" || r.Process != "p-"+r.Worker ||
				r.Lane != "quic/0" {
				t.Errorf("row %+v", r)
			}
			if r.Phase == report.PhaseWarmup {
				lens[r.OutputTokens] = true
			}
			checkTruth(t, s, run, r)
		}
		// 8 lengths spread over 1..12.
		for _, n := range []int{1, 2, 4, 5, 7, 8, 10, 11} {
			if !lens[n] {
				t.Errorf("no warm-up request of %d tokens: %v", n, lens)
			}
		}
		if w.ICL == nil || w.ICL.Max < 2 {
			t.Errorf("gaps %+v, each was at least 2 ms at the server", w.ICL)
		}
	})
}

// checkTruth holds a row's times to the server's own. The client can only be later; how much depends on the machine, so
// the bound is wide.
func checkTruth(t *testing.T, s *server, run *report.Run, r *report.Row) {
	t.Helper()
	const slack = 3 * time.Second
	s.mu.Lock()
	truth := *s.truth[r.ID]
	s.mu.Unlock()
	ttft, ok := r.TTFT()
	if !ok {
		t.Errorf("request %s has no first token", r.ID)
		return
	}
	want := truth.first.Sub(truth.got)
	if d := time.Duration(ttft) - want; d < -time.Millisecond || d > slack {
		t.Errorf("request %s: TTFT %v, the server took %v", r.ID, time.Duration(ttft), want)
	}
	d := time.Duration(r.Last-r.First) - truth.last.Sub(truth.first)
	if d < -slack || d > slack {
		t.Errorf("request %s: last-first differs by %v", r.ID, d)
	}
	if r.Intended > r.Sent || r.Sent > r.First || r.First > r.Last || r.Last > r.End {
		t.Errorf("times out of order: %+v", r)
	}
}

// TestStop: no further request begins, those that are open end whole, and each row is told of.
func TestStop(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, normal(time.Millisecond, time.Millisecond))
		stop := make(chan struct{})
		told := 0
		var late atomic.Int64
		run, rows := load(t, s, Config{Client: client, Concurrency: 4, OSL: 12, Warmup: 6, Stop: stop,
			Late: func(time.Duration) { late.Add(1) }, Each: func(report.Row) {
				if told++; told == 20 {
					close(stop)
				}
			}})
		if told != len(rows) || told < 20 || told > 30 {
			t.Errorf("%d rows, %d told of", len(rows), told)
		}
		for _, r := range rows {
			if !r.OK() || r.Wrong > 0 {
				t.Errorf("%+v", r)
			}
		}
		if run.Marked(report.MarkPartial) {
			t.Error("a run that was stopped is not partial")
		}
		if late.Load() == 0 {
			t.Error("nobody was told how late the client was")
		}
	})
}

func TestConnectionsAreKept(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, normal(0, 0))
		peers, all := map[string]int{}, make(chan struct{})
		inner := s.script
		s.script = func(s *server, c *call) {
			s.mu.Lock()
			if peers[c.r.RemoteAddr]++; len(peers) == 3 && peers[c.r.RemoteAddr] == 1 {
				close(all)
			}
			s.mu.Unlock()
			select {
			case <-all: // else one slot may have made all requests before another one begins
			case <-t.Context().Done():
			}
			inner(s, c)
		}
		load(t, s, Config{Client: client, Concurrency: 3, Requests: 60, OSL: 3, ISL: 3})
		if len(peers) != 3 {
			t.Errorf("%d connections for 3 slots: %v", len(peers), peers)
		}
	})
}

// TestKeptConnectionThatWasClosed closes each connection after its response without saying so, as a server's idle
// timeout does.
func TestKeptConnectionThatWasClosed(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, func(s *server, c *call) {
			conn, buf, err := http.NewResponseController(c.w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			body := "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: " +
				"{\"choices\":[],\"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n"
			buf.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: " +
				strconv.Itoa(len(body)) + "\r\n\r\n" + body)
			buf.Flush()
			conn.Close()
		})
		run, rows := load(t, s, Config{Client: client, Concurrency: 2, Requests: 20, OSL: 1, ISL: 3})
		if run.Raw.Requests != 20 || run.Raw.Errors != 0 {
			t.Errorf("raw %+v", run.Raw)
		}
		if s.n.Load() != 20 {
			t.Errorf("the server answered %d requests", s.n.Load())
		}
		for i := range rows {
			if rows[i].Retries > 1 {
				t.Errorf("row %+v", rows[i])
			}
		}
	})
}

func TestWrongTokensAreFound(t *testing.T) {
	faults := []struct {
		name  string
		idx   []int
		usage int
		wrong int64
	}{
		{"right, several a chunk", []int{0, 1, 2, 3, 4, 5, 6, 7}, 8, 0},
		{"missing", []int{0, 1, 2, 4, 5, 6, 7}, 8, 1},
		{"repeated", []int{0, 1, 2, 2, 3, 4, 5, 6, 7}, 8, 1},
		{"reordered", []int{0, 1, 3, 2, 4, 5, 6, 7}, 8, 2},
		{"short and the usage says so", []int{0, 1, 2, 3, 4, 5}, 6, 2},
		{"short and the usage does not", []int{0, 1, 2, 3, 4, 5}, 8, 2},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			clients(t, func(t *testing.T, client string) {
				s := newServer(t, func(s *server, c *call) {
					c.sse("w")
					for i := 0; i < len(f.idx); i += 3 {
						c.tokens(f.idx[i:min(i+3, len(f.idx))]...)
					}
					c.finish(f.usage)
				})
				run, rows := load(t, s, Config{Client: client, Concurrency: 1, Requests: 2, OSL: 8, ISL: 2})
				if *run.Raw.WrongTokens != 2*f.wrong || run.Raw.Chunks != 2*int64((len(f.idx)+2)/3) {
					t.Errorf("wrong %d chunks %d; rows %+v", *run.Raw.WrongTokens, run.Raw.Chunks, rows)
				}
			})
		})
	}
}

func TestAudit(t *testing.T) {
	plain := func(s *server, c *call) {
		c.sse("")
		c.text("Hello \"world\" \u00e9")
		c.finish(1)
	}
	for _, c := range []struct {
		audit string
		want  bool
	}{{AuditAuto, false}, {AuditOff, false}, {AuditOn, true}} {
		run, _ := load(t, newServer(t, plain), Config{Requests: 2, OSL: 1, ISL: 1, Audit: c.audit})
		if got := run.Raw.WrongTokens != nil; got != c.want {
			t.Errorf("audit %s: verified %v", c.audit, got)
		} else if got && *run.Raw.WrongTokens == 0 {
			t.Errorf("audit %s: no wrong token in a text of another kind", c.audit)
		}
	}
}

func TestErrorsAreClassified(t *testing.T) {
	cases := []struct {
		name         string
		script       func(s *server, c *call)
		end, errType string
		status       int
	}{
		{"status with type", func(_ *server, c *call) {
			c.w.WriteHeader(429)
			c.w.Write([]byte(`{"error":{"message":"busy","type":"overloaded_error"}}`))
		}, report.EndFailed, "overloaded_error", 429},
		{"status without type", func(_ *server, c *call) { http.Error(c.w, "nope", http.StatusBadGateway) }, report.EndFailed, "http_502",
			502},
		{"mid-stream error", func(_ *server, c *call) {
			c.sse("w")
			c.tokens(0)
			c.data(`{"error":{"message":"gone","type":"upstream_error"}}`)
			c.data("[DONE]")
		}, report.EndFailed, "upstream_error", 200},
		{"truncated", func(_ *server, c *call) { c.sse("w"); c.tokens(0) }, report.EndTruncated, "truncated", 200},
		{"cut off", func(_ *server, c *call) { c.sse("w"); c.tokens(0); panic(http.ErrAbortHandler) },
			report.EndTruncated, "truncated", 200},
		{"not a stream", func(_ *server, c *call) { c.w.Write([]byte(`{"choices":[]}`)) }, report.EndProtocol,
			"not_a_stream", 200},
		{"not JSON", func(_ *server, c *call) { c.sse("w"); c.data("{nonsense"); c.finish(1) }, report.EndProtocol,
			"protocol", 200},
		{"timeout", func(_ *server, c *call) { c.sse("w"); c.tokens(0); <-c.r.Context().Done() }, report.EndTimeout,
			"timeout", 200},
		{"timeout before the headers", func(_ *server, c *call) { <-c.r.Context().Done() }, report.EndTimeout,
			"timeout", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			clients(t, func(t *testing.T, client string) {
				s := newServer(t, func(s *server, call *call) {
					if call.n%2 == 1 {
						normal(0, 0)(s, call)
						return
					}
					c.script(s, call)
				})
				cfg := Config{Client: client, Concurrency: 1, Requests: 4, OSL: 3, ISL: 2}
				if c.end == report.EndTimeout {
					cfg.Timeout = 500 * time.Millisecond
				}
				run, rows := load(t, s, cfg)
				if run.Raw.Requests != 2 || run.Raw.Errors != 2 || run.Raw.ErrorsByType[c.errType] != 2 {
					t.Fatalf("%d complete, errors %v", run.Raw.Requests, run.Raw.ErrorsByType)
				}
				for i := range rows {
					if r := &rows[i]; i%2 == 0 && (r.Ended != c.end || r.ErrorType != c.errType ||
						r.Status != c.status) {
						t.Errorf("row %d: %+v", i, r)
					} else if i%2 == 1 && !r.OK() {
						t.Errorf("row %d after a failure: %+v", i, r)
					}
				}
				// Failed requests are outside the latencies.
				if run.Raw.TTFT.Max > 10e3 {
					t.Errorf("TTFT %+v", run.Raw.TTFT)
				}
			})
		})
	}
}

func TestServerThatGoesAway(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		gone := make(chan struct{})
		s := newServer(t, func(s *server, c *call) {
			if c.n == 5 {
				close(gone)
			}
			normal(0, time.Millisecond)(s, c)
		})
		go func() {
			<-gone
			s.Listener.Close()
			s.CloseClientConnections()
		}()
		run, rows := load(t, s, Config{Client: client, Concurrency: 2, Requests: 12, OSL: 50, ISL: 2})
		if run.Raw.Requests+run.Raw.Errors != 12 || len(rows) != 12 {
			t.Errorf("%d complete, %d failed, %d rows; want 12 in all", run.Raw.Requests, run.Raw.Errors, len(rows))
		}
		if run.Raw.ErrorsByType[report.EndConnect] == 0 {
			t.Errorf("errors %v", run.Raw.ErrorsByType)
		}
	})
}

func TestInterruptMakesAPartialReport(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := newServer(t, func(s *server, c *call) {
			if c.n == 6 {
				cancel()
				<-c.r.Context().Done()
				return
			}
			normal(0, 0)(s, c)
		})
		run, rows := loadCtx(t, ctx, s, Config{Client: client, Concurrency: 1, Requests: 1000, OSL: 3, ISL: 2})
		if !run.Marked(report.MarkPartial) || run.Raw.Requests != 6 || run.Raw.Errors != 0 || run.Raw.Canceled != 1 ||
			len(rows) != 7 {
			t.Errorf("marks %v raw %+v rows %d", run.Marks, run.Raw, len(rows))
		}
	})
}

func TestRates(t *testing.T) {
	for _, arrival := range []string{Constant, Poisson} {
		t.Run(arrival, func(t *testing.T) {
			clients(t, func(t *testing.T, client string) {
				s := newServer(t, normal(0, 0))
				run, rows := load(t, s, Config{Client: client, Concurrency: 50, Rate: 200, Arrival: arrival,
					Requests: 100, OSL: 2, ISL: 2, Seed: 7})
				if run.Raw.Requests != 100 {
					t.Fatalf("raw %+v", run.Raw)
				}
				seen := map[int64]bool{}
				last := int64(0)
				for i := range rows {
					r := &rows[i]
					if r.Intended > r.Sent || seen[r.Intended] {
						t.Errorf("row %+v", r)
					}
					seen[r.Intended] = true
					last = max(last, r.Intended)
				}
				if arrival == Constant {
					for i := range 100 {
						if !seen[int64(i)*5e6] {
							t.Errorf("no request was due at %d ms", 5*i)
						}
					}
				} else if last < 250e6 || last > 1000e6 {
					t.Errorf("100 arrivals at 200/s take %v", time.Duration(last))
				}
			})
		})
	}
}

// TestScheduleKeepsItsTimes holds that a server that is slow does not slow the schedule: the wait is in the effective
// latency.
func TestScheduleKeepsItsTimes(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, normal(50*time.Millisecond, 0))
		run, rows := load(t, s, Config{Client: client, Concurrency: 1, Rate: 100, Requests: 10, OSL: 2, ISL: 2})
		if run.Raw.Requests != 10 || s.most.Load() != 1 {
			t.Fatalf("raw %+v, %d open", run.Raw, s.most.Load())
		}
		for i := range rows {
			if want := int64(i) * 10e6; rows[i].Intended != want {
				t.Errorf("row %d was due at %v, want %v", i, time.Duration(rows[i].Intended), time.Duration(want))
			}
		}
		if d := rows[9].End - rows[9].Intended; d < 400e6 {
			t.Errorf("the last request waited for nine others, but its effective latency is %v", time.Duration(d))
		}
	})
}

func TestDuration(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, normal(0, time.Millisecond))
		run, rows := load(t, s, Config{Client: client, Concurrency: 2, Duration: 500 * time.Millisecond, OSL: 5, ISL: 2,
			Warmup: 2})
		first := int64(1 << 62)
		for i := range rows {
			if r := &rows[i]; r.Phase == report.PhaseMeasured {
				first = min(first, r.Intended)
			}
		}
		for i := range rows {
			if r := &rows[i]; r.Phase == report.PhaseMeasured && (r.Intended > first+500e6 || !r.OK()) {
				t.Errorf("row %+v", r)
			}
		}
		if run.Raw.Requests < 2 || run.Marked(report.MarkPartial) {
			t.Errorf("raw %+v marks %v", run.Raw, run.Marks)
		}
	})
}

func TestRamp(t *testing.T) {
	clients(t, func(t *testing.T, client string) {
		s := newServer(t, normal(5*time.Second, 0))
		s.script = func(s *server, c *call) { c.sse(""); c.text("x"); time.Sleep(900 * time.Millisecond); c.finish(1) }
		_, rows := load(t, s, Config{Client: client, Concurrency: 4, Requests: 4, Ramp: 400 * time.Millisecond, OSL: 1,
			ISL: 2})
		// they end in any order
		slices.SortFunc(rows, func(a, b report.Row) int { return cmp.Compare(a.Intended, b.Intended) })
		for i := range rows {
			if r := &rows[i]; r.Intended < int64(i)*100e6 {
				t.Errorf("request %d started at %v, want %d ms or later", i, time.Duration(r.Intended), i*100)
			}
		}
	})
}

func TestSteadyWindow(t *testing.T) {
	s := newServer(t, normal(0, 5*time.Millisecond))
	run, rows := load(t, s, Config{Concurrency: 4, Requests: 80, OSL: 4, ISL: 2, Warmup: DefaultWarmup,
		SteadyAfter: 100 * time.Millisecond})
	if run.Steady == nil {
		t.Fatal("no steady window")
	}
	first, last := int64(1<<62), int64(0)
	for i := range rows {
		if r := &rows[i]; r.Phase == report.PhaseMeasured {
			first, last = min(first, r.Sent), max(last, r.Intended)
		}
	}
	want := 0
	for i := range rows {
		if r := &rows[i]; r.Phase == report.PhaseMeasured && r.Sent >= first+100e6 && r.Sent <= last {
			want++
		}
	}
	if run.Steady.Requests != want || want == 0 || want >= run.Raw.Requests {
		t.Errorf("steady holds %d requests, want %d of %d", run.Steady.Requests, want, run.Raw.Requests)
	}
}

func TestSetupErrors(t *testing.T) {
	if _, err := Run(t.Context(), Config{URL: redact.New("http://127.0.0.1:1"), Requests: 1, Model: "m"}); err == nil {
		t.Error("no error without a server")
	}
	empty := newServer(t, nil)
	empty.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.Write([]byte(`{"data":[]}`))
	})
	if _, err := Run(t.Context(), Config{URL: redact.New(empty.URL), Requests: 1}); err == nil {
		t.Error("no error with a server that has no model")
	}
	dir := t.TempDir()
	s := newServer(t, normal(0, 0))
	cfg := Config{URL: redact.New(s.URL), Requests: 1, OSL: 2, ISL: 1, Dir: dir}
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), cfg); err == nil {
		t.Error("a run directory was used twice")
	}
}
