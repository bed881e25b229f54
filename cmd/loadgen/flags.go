package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/loadgen"
	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// defaultRequests is how many requests are measured when neither their number nor a duration is given.
const defaultRequests = 1000

type flags struct {
	url              *redact.URL
	model, extraBody *string
	header           *[]string

	concurrency, requests, warmup, isl, osl, seed *int
	rate                                          *float64
	arrival                                       *string
	duration, ramp, steadyAfter, timeout          *time.Duration
	audit, client                                 *string
	loops                                         *int
	tick                                          *time.Duration

	goodput      *string
	threshold    *[]string
	maxErrorRate *float64

	label, dir, ui, info, format *string
	metrics                      *[]redact.URL
}

func declare(app *cli.App) *flags {
	f := &flags{}
	g := app.Group("Target")
	f.url = g.URL("url", "http://127.0.0.1:8000", "URL",
		"server, or the full URL of its /v1/chat/completions, /v1/completions, /v1/responses or /v1/messages",
		loadgen.CheckURL)
	f.model = g.String("model", "", "model of the requests; empty = the first that the server lists")
	f.header = g.Repeated("header", "HEADER", "header line of every request, 'Name: value'; not written to the report",
		loadgen.CheckHeader)
	g.FromFile("header")
	f.extraBody = g.Checked("extra-body", "", "JSON",
		`fields added to every request, like {"ignore_eos":true}; {"stream_options":{"continuous_usage_stats":true}} has vLLM count tokens with each chunk`, loadgen.CheckBody)

	g = app.Group("Load")
	f.concurrency = g.Int("concurrency", 64, cli.Range(1, 1_000_000).Unit("requests"),
		"open requests of the closed loop; their upper bound with --request-rate")
	app.Alias("c", "concurrency")
	f.requests = g.Int("request-count", 0,
		cli.Range(1, 1_000_000_000).OrZero(fmt.Sprintf("until --benchmark-duration has passed, %d when that is 0 too",
			defaultRequests)), "measured requests")
	app.Alias("n", "request-count")
	f.duration = g.Duration("benchmark-duration", 0, cli.Any().OrZero("no limit"),
		"start measured requests for so long")
	app.Alias("z", "benchmark-duration")
	f.rate = g.Float("request-rate", 0, cli.Range(0, 1e6).OrZero("closed loop"),
		"requests per second on a fixed schedule, which a slow server does not slow")
	f.arrival = g.Enum("arrival-pattern", loadgen.Constant, []string{loadgen.Constant, loadgen.Poisson},
		"times between the requests of --request-rate")
	f.isl = g.Int("isl", 1024, cli.Range(1, 1_000_000).Unit("tokens"), "input length, about a word a token")
	f.osl = g.Int("osl", 256, cli.Range(1, 1_000_000).Unit("tokens"),
		"output length (max_tokens, or the API's name for it)")
	f.warmup = g.Int("warmup-request-count", loadgen.DefaultWarmup, cli.Range(-1, 1_000_000),
		"requests before the measured ones, of lengths spread over 1..osl, which they follow without a pause; -1 = "+
			"as --concurrency (none with --request-rate)")
	f.ramp = g.Duration("concurrency-ramp-duration", 0, cli.Any().OrZero("all at once"),
		"spread the first requests of the closed loop over so long")
	f.timeout = g.Duration("request-timeout", 10*time.Minute, cli.Min(time.Millisecond), "bound of one request")
	f.seed = g.Int("random-seed", 0, cli.Any(), "seed of the arrivals and of the order of the warm-up lengths")
	f.client = g.Enum("client", loadgen.ClientAuto, []string{loadgen.ClientAuto, loadgen.ClientRing,
		loadgen.ClientEpoll, loadgen.ClientGoroutines},
		"io_uring and epoll: loops over raw sockets (Linux, http); goroutines: one for each connection (everywhere, "+
			"https); auto = the first of these that works here. The report names it, and why it is not the first")
	f.loops = g.Int("client-loops", 0, cli.Range(1, 64).OrZero("one for every two cores"),
		"loops of the io_uring and epoll clients")
	f.tick = g.Duration("client-tick", time.Millisecond, cli.Range(100*time.Microsecond,
		10*time.Millisecond).OrZero("off"),
		"at over 4,000 events a second a loop lets events gather for so long before it reads them: times are late by "+
			"half of it, and client and server save a wake for most events")

	g = app.Group("Judgement")
	f.audit = g.Enum("audit", loadgen.AuditAuto, []string{loadgen.AuditAuto, loadgen.AuditOn, loadgen.AuditOff},
		"verify every token of the mock engine; auto = when the response names a Laneway worker")
	f.steadyAfter = g.Duration("steady-after", 10*time.Second, cli.Any(),
		"the steady window begins so long after the first measured request")
	f.goodput = g.Checked("goodput", "", "LIMITS",
		`count the requests that keep these limits, like "ttft:250ms itl:50ms latency:20s"; a plain number is milliseconds, as in vLLM and aiperf`, func(s string) error { _, err := report.ParseSLO(s); return err })
	f.threshold = g.Repeated("threshold", "CONDITION",
		"exit 3 unless it holds, like 'ttft_p99<250ms'; of the steady window when there is one ('raw:ttft_p99<1s' "+
			"names the other)", checkThreshold)
	f.maxErrorRate = g.Float("max-error-rate", 0, cli.Range(0, 1), "exit 2 when a larger share of the requests fails")

	g = app.Group("Report")
	f.label = g.String("label", "", "name of the run")
	f.dir = g.String("artifact-dir", "",
		"run directory, which must not hold a run yet; empty = runs/loadgen-TIME-XXXXXXXX")
	f.metrics = g.RepeatedURL("metrics-url", "URL",
		"Prometheus text of a frontend or worker, like http://127.0.0.1:9090/metrics; gives CPU per request, the "+
			"plane's counts and drops", loadgen.CheckURL)
	f.info = g.String("run-info", "",
		`JSON file with what the starter of the run knows: {"config":{...},"environment":{...},"processes":[...]}; merged into run.json. config.response_plane asks for the proof of transit`)
	f.ui = g.Enum("ui", uiAuto, []string{uiAuto, uiSimple, uiNone},
		"status on standard error; auto = one line that is rewritten on a terminal, else as simple: a line now "+
			"and then")

	f.format = g.Enum("format", loadgen.FormatTable, loadgen.Formats(),
		"what is printed at the end: the table, or one JSON object with the keys of `vllm bench serve --save-result` "+
			"or of aiperf's profile_export_aiperf.json")
	app.Check(func() error {
		if *f.rate > 0 && *f.ramp > 0 {
			return fmt.Errorf("--request-rate and --concurrency-ramp-duration exclude each other: the ramp is for " +
				"the closed loop")
		}
		return nil
	})
	app.Check(func() error {
		if loops := *f.client == loadgen.ClientRing || *f.client == loadgen.ClientEpoll; loops &&
			strings.HasPrefix(f.url.Whole(), "https:") {
			return fmt.Errorf("--client %s does not speak TLS: use --client goroutines or an http URL", *f.client)
		}
		return nil
	})
	return f
}

// config is what the flags ask for. They were checked one by one when they were parsed.
func (f *flags) config(app *cli.App) (loadgen.Config, error) {
	slo, err := report.ParseSLO(*f.goodput)
	if err != nil {
		return loadgen.Config{}, fmt.Errorf("--goodput %w", err)
	}
	cfg := loadgen.Config{
		URL: *f.url, Model: *f.model, Header: *f.header, ExtraBody: *f.extraBody, Concurrency: *f.concurrency,
		Requests: *f.requests, Duration: *f.duration,
		Rate: *f.rate, Arrival: *f.arrival, ISL: *f.isl, OSL: *f.osl, Warmup: *f.warmup, Ramp: *f.ramp,
		SteadyAfter: *f.steadyAfter, Timeout: *f.timeout,
		Goodput: slo, Seed: uint64(*f.seed), Audit: *f.audit, Client: *f.client, Loops: *f.loops, Tick: *f.tick,
		MetricsURLs: *f.metrics, Label: *f.label, Dir: *f.dir,
		Settings: app.Config(),
	}
	delete(cfg.Settings, "header") // it may hold a key
	if cfg.Requests == 0 && cfg.Duration == 0 {
		cfg.Requests = defaultRequests
	}
	if *f.info != "" {
		b, err := os.ReadFile(*f.info)
		if err != nil {
			return cfg, fmt.Errorf("--run-info: %w", err)
		}
		if cfg.Info, err = loadgen.ParseInfo(b); err != nil {
			return cfg, fmt.Errorf("--run-info %s: %w", *f.info, err)
		}
	}
	return cfg, nil
}

// check is what a run would refuse before it begins.
func (f *flags) check(app *cli.App) error {
	cfg, err := f.config(app)
	if err != nil {
		return err
	}
	return cfg.Validate()
}

func (f *flags) thresholds() []report.Threshold { return parseThresholds(*f.threshold) }

// parseThresholds reads conditions that were checked when they were parsed.
func parseThresholds(list []string) []report.Threshold {
	var out []report.Threshold
	for _, s := range list {
		if t, err := report.ParseThreshold(s); err == nil {
			out = append(out, t)
		}
	}
	return out
}
