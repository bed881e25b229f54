package loadgen

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Arrival patterns of a fixed schedule.
const (
	Constant = "constant"
	Poisson  = "poisson"
)

// When the text of a response is verified.
const (
	AuditAuto = "auto" // when the response names a Laneway worker, whose mock engine makes verifiable text
	AuditOn   = "on"
	AuditOff  = "off"
)

// Kinds of client.
const (
	ClientAuto       = "auto"
	ClientRing       = "io_uring"
	ClientEpoll      = "epoll"
	ClientGoroutines = "goroutines"
)

// DefaultWarmup as Config.Warmup asks for as many warm-up requests as there are open requests (none with Rate).
const DefaultWarmup = -1

// Config is what Run does. The zero value of a field means its default, except where the comment says otherwise.
type Config struct {
	// URL is the server: http://host:port, with or without /v1, or the full URL of an endpoint
	// (.../v1/chat/completions, .../v1/completions, .../v1/responses, .../v1/messages).
	URL redact.URL
	// Model is sent with every request; empty asks the server's /v1/models for its first one.
	Model string
	// Header lines ("Name: value") go out with every request.
	Header []string
	// ExtraBody is a JSON object whose fields are added to every request; empty for none.
	ExtraBody string

	// Concurrency is the number of open requests of the closed loop, or their upper bound with Rate. Default 1.
	Concurrency int
	// Requests is the number of measured requests; 0 leaves the end to Duration. One of the two must be set.
	Requests int
	// Duration is for how long measured requests are started, counted from the first; those that are open then still
	// end. 0 = no limit.
	Duration time.Duration
	// Rate starts requests on a fixed schedule, per second, instead of the closed loop. 0 = closed loop.
	Rate float64
	// Arrival is Constant (default) or Poisson.
	Arrival string
	// ISL and OSL are the input and output tokens of a request. Defaults 1024 and 256.
	ISL, OSL int
	// Warmup is the number of requests before the measured ones. Their output lengths are spread over 1..OSL, so that
	// their ends, and with them the starts of the measured requests, are spread over one response. 0 is none,
	// DefaultWarmup is Concurrency.
	Warmup int
	// Ramp spreads the first starts of the closed loop over this time. 0 = all at once.
	Ramp time.Duration
	// SteadyAfter is how long after the first measured start the steady window begins. 0 = at once.
	SteadyAfter time.Duration
	// Timeout bounds one request, connecting included. Default 10m.
	Timeout time.Duration
	// Goodput holds the limits that a request must meet to count as good; zero for none.
	Goodput report.SLO
	// Seed makes arrivals and the order of the warm-up lengths repeatable. 0 is a seed like any other.
	Seed uint64
	// Audit is AuditAuto (default), AuditOn or AuditOff.
	Audit string
	// Client is ClientAuto (default: the one that costs least of those that work here), ClientRing, ClientEpoll or
	// ClientGoroutines.
	Client string
	// Loops is the number of loops of the io_uring and epoll clients; 0 = one for every two cores. 1..64.
	Loops int
	// Tick is how long a loop lets events gather when they come faster than 4,000 a second; 0 = not at all, up to 10
	// ms.
	Tick time.Duration

	// MetricsURLs are the Prometheus endpoints of frontends and workers.
	MetricsURLs []redact.URL
	// Info is merged into the report: what the starter of the run knows.
	Info Info
	// Settings is every flag in force, for the report's config.
	Settings map[string]any
	Label    string
	// Dir is the run directory; it must not hold a run yet. Empty writes no files.
	Dir string
	// Stop, when it is closed, starts no further request; those that are open still end. nil = never.
	Stop <-chan struct{}
	// Each is told of every request that has ended, by one goroutine; nil for nobody.
	Each func(report.Row)
	// Late is told each time how late a loop of the client was, by the loop, so it may be called concurrently and must
	// not wait; nil for nobody. The report has the whole run's.
	Late func(time.Duration)
	// Progress is called about once a second from one goroutine; nil for none.
	Progress func(Status)
	// Log may be nil.
	Log *slog.Logger
}

// withDefaults returns c with the defaults filled in.
func (c Config) withDefaults() Config {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Concurrency, 1)
	def(&c.ISL, 1024)
	def(&c.OSL, 256)
	def(&c.Loops, max(1, runtime.GOMAXPROCS(0)/2))
	if c.Arrival == "" {
		c.Arrival = Constant
	}
	if c.Audit == "" {
		c.Audit = AuditAuto
	}
	if c.Client == "" {
		c.Client = ClientAuto
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.Warmup == DefaultWarmup {
		c.Warmup = c.Concurrency
		if c.Rate > 0 {
			c.Warmup = 0
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns everything that is wrong with c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	if err := CheckURL(c.URL.Whole()); err != nil {
		bad("URL %q %w", c.URL, err)
	}
	for _, u := range c.MetricsURLs {
		if err := CheckURL(u.Whole()); err != nil {
			bad("metrics URL %q %w", u, err)
		}
	}
	for _, h := range c.Header {
		if err := CheckHeader(h); err != nil {
			bad("header %q %w", h, err)
		}
	}
	if err := CheckBody(c.ExtraBody); err != nil {
		bad("extra body %w", err)
	}
	if c.Requests == 0 && c.Duration == 0 && c.Stop == nil {
		bad("neither Requests nor Duration is set: the run would not end")
	}
	for _, n := range []struct {
		name string
		v    int64
	}{
		{"Concurrency", int64(c.Concurrency)}, {"Requests", int64(c.Requests)}, {"ISL", int64(c.ISL)},
		{"OSL", int64(c.OSL)}, {"Loops", int64(c.Loops)},
		{"Duration", int64(c.Duration)}, {"Ramp", int64(c.Ramp)}, {"SteadyAfter", int64(c.SteadyAfter)},
		{"Timeout", int64(c.Timeout)},
	} {
		if n.v < 0 {
			bad("%s is %d, expected 0 or more", n.name, n.v)
		}
	}
	if !(c.Rate >= 0) || math.IsInf(c.Rate, 1) {
		bad("Rate is %v, expected 0 or more", c.Rate)
	}
	if c.Rate > 0 && c.Ramp > 0 {
		bad("Rate and Ramp exclude each other: the ramp is for the closed loop")
	}
	if c.Warmup < DefaultWarmup {
		bad("Warmup is %d, expected 0 or more", c.Warmup)
	}
	if c.Tick < 0 || c.Tick > 10*time.Millisecond {
		bad("Tick is %v, expected 0 to 10ms", c.Tick)
	}
	if c.Loops > 64 {
		bad("Loops is %d, expected 1 to 64", c.Loops)
	}
	word := func(name, v string, allowed ...string) {
		for _, a := range allowed {
			if v == a || v == "" {
				return
			}
		}
		bad("%s is %q, expected one of %s", name, v, strings.Join(allowed, ", "))
	}
	word("Arrival", c.Arrival, Constant, Poisson)
	word("Audit", c.Audit, AuditAuto, AuditOn, AuditOff)
	word("Client", c.Client, ClientAuto, ClientRing, ClientEpoll, ClientGoroutines)
	return errors.Join(errs...)
}

// CheckURL says what is wrong with a URL, without naming it.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("is not a URL: write it like http://127.0.0.1:8000")
	}
	if u.Hostname() == "" {
		return errors.New("names no host: write it like http://127.0.0.1:8000")
	}
	return nil
}
