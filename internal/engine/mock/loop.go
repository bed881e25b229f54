package mock

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/laneway-ai/laneway/internal/serving/mockproto"
	"github.com/laneway-ai/laneway/responseplane"
)

// loop is the state of an engine that only its goroutine touches.
type loop struct {
	cfg         *Config
	sched       schedule
	prefillRand *rand.Rand
	holdRand    *rand.Rand
	runningNow  *atomic.Int64 // prefill + decode, for Load
	heldNow     *atomic.Int64

	held    queue // in order of readyAt: all are held for the same time
	waiting queue
	prefill prefills
	decode  []*seq // in order of their first tokens; decoding, parked, stalled

	order uint64 // of admissions
	ended int    // requests that have ended since the last settle
	wrote bool   // since the last flush
	buf   []byte // of the record or trailer that is being written
}

func (l *loop) running() int { return len(l.prefill) + len(l.decode) }

// idle tells whether there is no request to make a pass over.
func (l *loop) idle() bool { return l.running() == 0 && l.waiting.len() == 0 && l.held.len() == 0 }

// enqueue takes a new request.
func (l *loop) enqueue(s *seq, now time.Time) {
	if l.idle() {
		l.sched.skipTo(now) // an idle engine has missed no passes
	}
	if l.cfg.HoldShare > 0 && l.holdRand.Float64() < l.cfg.HoldShare {
		s.state = held
		s.readyAt = now.Add(l.cfg.HoldDelay)
		l.held.push(s)
		l.cfg.Observer.Held()
		return
	}
	l.waiting.push(s)
}

// release lets the requests go on that were held long enough.
func (l *loop) release(now time.Time) {
	for l.held.len() > 0 && !l.held.first().readyAt.After(now) {
		s := l.held.pop()
		s.state = waiting
		l.waiting.push(s)
	}
}

// step does everything that is due at now.
func (l *loop) step(now time.Time) {
	if !l.idle() && !now.Before(l.sched.next) {
		l.pass(now)
	}
	l.release(now)
	for {
		l.admit(now)
		if !l.finishPrefills(now) {
			break
		}
	}
	l.runningNow.Store(int64(l.running()))
	l.heldNow.Store(int64(l.held.len()))
	if l.wrote {
		l.wrote = false
		l.cfg.Flush()
	}
}

// nextEvent is when step has something to do next; false when nothing is open.
func (l *loop) nextEvent() (time.Time, bool) {
	if l.idle() {
		return time.Time{}, false
	}
	next := l.sched.next
	if len(l.prefill) > 0 && l.prefill[0].readyAt.Before(next) {
		next = l.prefill[0].readyAt
	}
	if l.held.len() > 0 && l.held.first().readyAt.Before(next) {
		next = l.held.first().readyAt
	}
	return next, true
}

// pass makes one token on each request that decodes, and drops those that nobody wants any more, wherever they stand.
func (l *loop) pass(now time.Time) {
	late, skipped := l.sched.take(now)
	l.cfg.Observer.Pass(late, skipped)
	n := 0
	for _, s := range l.decode {
		if l.emit(s) {
			l.decode[n] = s
			n++
		}
	}
	clear(l.decode[n:])
	l.decode = l.decode[:n]
	l.prefill.filter(l.wanted)
	l.waiting.filter(l.wanted)
	l.held.filter(l.wanted)
}

// admit moves waiting requests to the running set while there is room.
func (l *loop) admit(now time.Time) {
	for l.running() < l.cfg.MaxNumSeqs && l.waiting.len() > 0 {
		s := l.waiting.pop()
		if !l.wanted(s) {
			continue
		}
		s.state = prefilling
		s.readyAt = now.Add(draw(l.prefillRand, l.cfg.TimeToFirstToken, l.cfg.TimeToFirstTokenStdDev))
		s.order = l.order
		l.order++
		l.prefill.push(s)
	}
}

// finishPrefills writes the first tokens of the requests whose prefill is done. It reports whether there was one.
func (l *loop) finishPrefills(now time.Time) (some bool) {
	for len(l.prefill) > 0 && !l.prefill[0].readyAt.After(now) {
		some = true
		s := l.prefill.pop()
		s.state = decoding
		if l.emit(s) {
			l.decode = append(l.decode, s)
		}
	}
	return some
}

// wanted drops a request that was cancelled, and ends one that is to stop, before it has written anything.
func (l *loop) wanted(s *seq) bool {
	if s.w.Err() != nil {
		l.cancelled(s)
		return false
	}
	if s.w.StopRequested() {
		l.complete(s, mockproto.FinishStop, s.next)
		return false
	}
	return true
}

// emit writes the request's next token, if it can. It reports whether the request goes on. It does not allocate.
func (l *loop) emit(s *seq) bool {
	if s.state == stalled {
		if s.w.Err() != nil {
			l.cancelled(s)
			return false
		}
		return true
	}
	if !l.wanted(s) {
		return false
	}
	if s.state == parked {
		return true
	}
	if s.next == s.failAt && !l.injected(s) {
		return false
	}
	if s.state == stalled {
		return true
	}
	switch {
	case s.next < s.limit:
		l.buf = s.gen.Append(l.buf[:0], s.next)
	case s.next < s.total():
		l.buf = append(l.buf[:0], s.tail...)
	default: // a stop string at the very beginning
		l.complete(s, s.reason, s.next)
		return false
	}
	if err := s.w.TryPut(l.buf); err != nil {
		if errors.Is(err, responseplane.ErrWindowFull) {
			s.state = parked // onWritable moves it on; the token is made again then
			return true
		}
		l.cancelled(s)
		return false
	}
	l.wrote = true
	if s.next == 0 {
		l.cfg.Observer.FirstToken(time.Since(s.arrived))
	}
	s.next++
	if s.next == s.total() {
		l.complete(s, s.reason, s.next)
		return false
	}
	return true
}

// injected lets an injected failure show. It reports whether the request goes on.
func (l *loop) injected(s *seq) bool {
	l.cfg.Observer.Injected(s.inject)
	switch s.inject {
	case FailStall:
		s.state = stalled
		return true
	case FailLane:
		s.failAt = -1
		l.cfg.CloseLane()
		return true
	case FailKill:
		s.failAt = -1 // where killing takes a moment, this was the one
		l.cfg.Kill()
		return true
	case FailTruncate:
		l.complete(s, s.reason, s.total())
	default:
		l.fail(s, "injected failure", false)
	}
	return false
}

func (l *loop) complete(s *seq, reason string, tokens int) {
	l.buf = mockproto.Trailer{FinishReason: reason, PromptTokens: s.prompt, CompletionTokens: tokens}.Append(l.buf[:0])
	if err := s.w.PutComplete(l.buf); err != nil {
		l.cancelled(s) // the other side was faster
		return
	}
	l.wrote = true
	l.end(s)
}

func (l *loop) fail(s *seq, text string, retryable bool) {
	if err := s.w.Fail(responseplane.Failure{Code: responseplane.CodeInternal, Text: text,
		Retryable: retryable}); err != nil {
		l.cancelled(s)
		return
	}
	l.wrote = true
	l.end(s)
}

func (l *loop) cancelled(s *seq) {
	l.cfg.Observer.Cancelled()
	l.end(s)
}

func (l *loop) end(s *seq) {
	s.state = done
	l.ended++
}

// abandon ends everything that is open as failed.
func (l *loop) abandon() {
	end := func(s *seq) bool {
		if s.w.Err() != nil {
			l.cancelled(s)
		} else {
			l.fail(s, "the worker is shutting down", true)
		}
		return false
	}
	for _, s := range l.decode {
		end(s)
	}
	l.decode = nil
	l.prefill.filter(end)
	l.waiting.filter(end)
	l.held.filter(end)
	l.runningNow.Store(0)
	l.heldNow.Store(0)
	if l.wrote {
		l.wrote = false
		l.cfg.Flush()
	}
}
