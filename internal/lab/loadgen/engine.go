package loadgen

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// engine is what all connections of a run share.
type engine struct {
	cfg    Config
	target *target
	addr   string // resolved, to connect to
	t0     time.Time
	prefix string // of the request ids
	plan   *plan
	locals []*local
	rows   chan ending
	// secrets are what the report must not hold though a server may send it back: values of headers, the password of
	// the URL.
	secrets []string
	// fallback says why the client is not the one that costs least; empty when it is, or another one was asked for.
	fallback string

	open    atomic.Int64
	quiet   atomic.Int64 // warnings that were held back
	warned  atomic.Int64
	rampEnd int64
}

// client makes the load: it takes jobs from the plan until there are none, and returns when all its requests have
// ended. When ctx ends it ends the open requests as canceled. It hands every row in exactly once.
type client interface {
	run(ctx context.Context) error
	kind() string
}

// now is the run's clock: monotonic nanoseconds after its start.
func (e *engine) now() int64 { return int64(time.Since(e.t0)) }

// requestID names a request: unique among runs, so that a frontend that two generators load keeps them apart.
func (e *engine) requestID(seq int) string { return e.prefix + strconv.Itoa(seq) }

// hand takes the row of an ended exchange. The channel is large and its reader only encodes and counts; when it is full
// the loop waits, and the wait shows in its schedule delay.
func (e *engine) hand(r report.Row, said string) {
	e.open.Add(-1)
	for _, s := range e.secrets {
		said = strings.ReplaceAll(said, s, "[redacted]")
		r.ErrorType = strings.ReplaceAll(r.ErrorType, s, "[redacted]")
	}
	r.ErrorType = report.CutType(r.ErrorType)
	e.rows <- ending{row: r, said: said}
}

// ending is an ended request: its row, and what was said of its failure.
type ending struct {
	row  report.Row
	said string
}

// minSecret is the shortest value that is taken for a secret: a shorter one stands in texts by chance.
const minSecret = 8

// secretsOf are the values that requests carry and that are written nowhere.
func secretsOf(header []string, at *url.URL) (out []string) {
	add := func(s string) {
		if len(s) >= minSecret && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if at.User != nil {
		pass, ok := at.User.Password()
		if !ok { // the user is a token
			pass = at.User.Username()
		}
		add(pass)
		add(basic(at.User))
	}
	for pair := range strings.FieldsFuncSeq(at.RawQuery, func(r rune) bool { return r == '&' || r == ';' }) {
		_, v, _ := strings.Cut(pair, "=")
		add(v) // as it is sent
		if plain, err := url.QueryUnescape(v); err == nil {
			add(plain)
		}
	}
	for _, line := range header {
		_, value := cutHeader(line)
		add(value)
		if _, key, ok := strings.Cut(value, " "); ok { // "Bearer KEY"
			add(key)
		}
	}
	return out
}

// steadyAt tells whether a measured request that starts now belongs to the steady window. (All measured requests start
// before load stops being held.)
func (e *engine) steadyAt(now int64) bool {
	e.plan.mu.Lock()
	first := e.plan.firstAt
	e.plan.mu.Unlock()
	return first != report.Absent && now >= max(report.After(first, int64(e.cfg.SteadyAfter)), e.rampEnd)
}

// maxWarnings bounds the log: a server that fails every request must not fill the disk.
const maxWarnings = 20

func (e *engine) warn(msg string, args ...any) {
	if n := e.warned.Add(1); n > maxWarnings {
		e.quiet.Add(1)
		return
	}
	e.cfg.Log.Log(context.Background(), slog.LevelWarn, msg, args...)
}

// Pauses of a slot whose request failed, so that a server that is down or refuses is not met with a storm: doubled from
// the first to the last with each failure in a row.
const (
	pauseFirst = 50 * time.Millisecond
	pauseLast  = 2 * time.Second
)

// pause is how long a slot rests after so many failures in a row.
func pause(fails int) time.Duration {
	if fails <= 0 {
		return 0
	}
	return min(pauseFirst<<min(fails-1, 10), pauseLast)
}

// doneGrace is how long a connection may take to send the last bytes of a response after [DONE]; later it is closed,
// and the response counts.
const doneGrace = time.Second
