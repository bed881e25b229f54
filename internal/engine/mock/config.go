package mock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/engine/mock/tokentext"
)

// Defaults of Config.
const (
	DefaultMaxNumSeqs            = 256
	DefaultMaxWaitingQueueLength = 1000
	DefaultOutputTokens          = 256
	DefaultTimeToFirstToken      = 20 * time.Millisecond
	DefaultInterTokenLatency     = 200 * time.Millisecond
)

const (
	// MaxOutputTokens is the longest response that an engine makes; a request for more is refused.
	MaxOutputTokens = 1 << 20
	// MinInterTokenLatency is the shortest interval of passes, after SpeedupRatio.
	MinInterTokenLatency = 100 * time.Microsecond

	maxDuration = time.Hour // of any configured time, before SpeedupRatio
)

// Config of one engine. The zero value of a field means its default, where one is named.
type Config struct {
	// Index of this engine and the Count of engines in its process; they place its passes (Phase). Count 0 means 1.
	Index, Count int
	// Seed of the process: it draws the times and the failures, and places the process among others. Any value; the
	// same seed gives the same draws in the order in which requests come.
	Seed uint64

	// TimeToFirstToken is the mean time of a prefill. Negative means none; 0 is the default, 20 ms.
	TimeToFirstToken time.Duration
	// TimeToFirstTokenStdDev is its standard deviation; a draw is kept within 70% of the mean. Default 0.
	TimeToFirstTokenStdDev time.Duration
	// InterTokenLatency is the mean interval of passes. Default 200 ms.
	InterTokenLatency time.Duration
	// InterTokenLatencyStdDev is its standard deviation, drawn for each pass and kept within 70% of the mean. Default
	// 0.
	InterTokenLatencyStdDev time.Duration
	// SpeedupRatio divides all four times. Default 1.
	SpeedupRatio float64

	// MaxNumSeqs is how many requests run at once. Default 256.
	MaxNumSeqs int
	// MaxWaitingQueueLength is how many more may wait; the next one is refused. Negative means none; 0 is the default,
	// 1000.
	MaxWaitingQueueLength int
	// OutputTokens is the length of a response to a request that does not say. Default 256, at most MaxOutputTokens.
	OutputTokens int
	// TokenBytes is the size of a token, 4 to 4096. 0 means 4 to 8 bytes, by token.
	TokenBytes int

	// FailureRate is the share of requests that fail, 0 to 1. Default 0.
	FailureRate float64
	// FailureTypes are the ways in which they fail, with equal shares. Needed when FailureRate is above 0.
	FailureTypes []FailureType

	// CloseLane and Kill are what FailLane and FailKill do: close a lane of the process, end the process. They are
	// called by the engine's goroutine and must not block. Each is needed when its type is among FailureTypes.
	CloseLane, Kill func()

	// HoldShare is the share of the requests, 0 to 1, that are held back for HoldDelay before they join the waiting
	// queue. A held request takes a waiting place. Default 0.
	HoldShare float64
	// HoldDelay is how long such a request is held, at most an hour. SpeedupRatio does not divide it. Needed when
	// HoldShare is above 0.
	HoldDelay time.Duration

	// Flush is called at the end of each pass that wrote something, by the engine's goroutine. It must not block.
	// Required.
	Flush func()
	// Observer is told what happens. nil means nobody.
	Observer Observer
}

// Observer is told what an engine does. Its methods are called by the engine's goroutine (Refused by that of Submit),
// must not block and must be safe for concurrent use when engines share one.
type Observer interface {
	// FirstToken: a response's first token was written, so long after the request was submitted.
	FirstToken(after time.Duration)
	// Pass: a pass ran so long after its scheduled time; skipped is how many passes before it were missed.
	Pass(late time.Duration, skipped int)
	// Cancelled: a request was dropped because nobody wants its response any more.
	Cancelled()
	// Refused: a request was refused with this reason.
	Refused(reason RefuseReason)
	// Injected: a failure of this type shows itself.
	Injected(kind FailureType)
	// Held: a request is held back.
	Held()
}

// withDefaults returns c with defaults put in and its times divided by SpeedupRatio.
func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Count, 1)
	def(&c.MaxNumSeqs, DefaultMaxNumSeqs)
	def(&c.MaxWaitingQueueLength, DefaultMaxWaitingQueueLength)
	c.MaxWaitingQueueLength = max(c.MaxWaitingQueueLength, 0)
	def(&c.OutputTokens, DefaultOutputTokens)
	if c.TimeToFirstToken == 0 {
		c.TimeToFirstToken = DefaultTimeToFirstToken
	}
	c.TimeToFirstToken = max(c.TimeToFirstToken, 0)
	if c.InterTokenLatency == 0 {
		c.InterTokenLatency = DefaultInterTokenLatency
	}
	if c.SpeedupRatio == 0 {
		c.SpeedupRatio = 1
	}
	for _, d := range []*time.Duration{&c.TimeToFirstToken, &c.TimeToFirstTokenStdDev, &c.InterTokenLatency,
		&c.InterTokenLatencyStdDev} {
		*d = time.Duration(float64(*d) / c.SpeedupRatio)
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	return c
}

// Validate returns everything that does not hold.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf("mock: "+format, a...)) }
	if c.Flush == nil {
		bad("Flush is nil")
	}
	if c.Count < 0 || c.Index < 0 || c.Index >= max(c.Count, 1) {
		bad("engine index %d of %d is not one of 0 to count-1", c.Index, max(c.Count, 1))
	}
	if c.MaxNumSeqs < 0 || c.MaxNumSeqs > 1<<16 {
		bad("max-num-seqs is %d, expected 1 to 65536", c.MaxNumSeqs)
	}
	if c.MaxWaitingQueueLength > 1<<20 {
		bad("max-waiting-queue-length is %d, expected at most %d", c.MaxWaitingQueueLength, 1<<20)
	}
	if c.OutputTokens < 0 || c.OutputTokens > MaxOutputTokens {
		bad("output-tokens is %d, expected 1 to %d", c.OutputTokens, MaxOutputTokens)
	}
	if c.TokenBytes != 0 && (c.TokenBytes < tokentext.MinSize || c.TokenBytes > tokentext.MaxSize) {
		bad("token-bytes is %d, expected 0 (4 to 8 bytes, by token) or %d to %d", c.TokenBytes, tokentext.MinSize,
			tokentext.MaxSize)
	}
	if c.SpeedupRatio < 0 || c.SpeedupRatio > 1e6 || (c.SpeedupRatio > 0 && c.SpeedupRatio < 1e-6) ||
		c.SpeedupRatio != c.SpeedupRatio {
		bad("speedup-ratio is %v, expected above 0 (it divides all times)", c.SpeedupRatio)
	}
	for _, d := range []struct {
		name string
		v    time.Duration
		neg  bool
	}{
		{"time-to-first-token", c.TimeToFirstToken, true},
		{"time-to-first-token-std-dev", c.TimeToFirstTokenStdDev, false},
		{"inter-token-latency", c.InterTokenLatency, false},
		{"inter-token-latency-std-dev", c.InterTokenLatencyStdDev, false},
	} {
		if d.v > maxDuration || (d.v < 0 && !d.neg) {
			bad("%s is %v, expected 0 to %v", d.name, d.v, maxDuration)
		}
	}
	if len(errs) == 0 {
		if w := c.withDefaults(); w.InterTokenLatency < MinInterTokenLatency {
			bad("inter-token-latency / speedup-ratio is %v, expected at least %v", w.InterTokenLatency,
				MinInterTokenLatency)
		}
	}
	if !(c.FailureRate >= 0 && c.FailureRate <= 1) {
		bad("failure-injection-rate is %v, expected 0 to 1", c.FailureRate)
	}
	if c.FailureRate > 0 && len(c.FailureTypes) == 0 {
		bad("failure-injection-rate is %v but failure-types is empty, expected some of %s", c.FailureRate,
			strings.Join(FailureTypeNames(), ", "))
	}
	for _, f := range c.FailureTypes {
		if !slices.Contains(failureTypes, f) {
			bad("failure type %q is not one of %s", f, strings.Join(FailureTypeNames(), ", "))
		}
	}
	for kind, f := range map[FailureType]func(){FailLane: c.CloseLane, FailKill: c.Kill} {
		if c.FailureRate > 0 && f == nil && slices.Contains(c.FailureTypes, kind) {
			bad("failure type %q has no function that does it", kind)
		}
	}
	if !(c.HoldShare >= 0 && c.HoldShare <= 1) {
		bad("hold-share is %v, expected 0 to 1", c.HoldShare)
	}
	if c.HoldDelay < 0 || c.HoldDelay > maxDuration {
		bad("hold-delay is %v, expected 0 to %v", c.HoldDelay, maxDuration)
	}
	if (c.HoldShare > 0) != (c.HoldDelay > 0) {
		bad("hold-share is %v and hold-delay %v: one without the other holds nothing, set both", c.HoldShare,
			c.HoldDelay)
	}
	return errors.Join(errs...)
}

type nobody struct{}

func (nobody) FirstToken(time.Duration) {}
func (nobody) Pass(time.Duration, int)  {}
func (nobody) Cancelled()               {}
func (nobody) Refused(RefuseReason)     {}
func (nobody) Injected(FailureType)     {}
func (nobody) Held()                    {}
