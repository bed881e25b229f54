package responseplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/mux"
)

// Request is what Open sends to a worker.
type Request struct {
	ID string // for logs and metrics at both ends; unique
	// ClientID is what the client calls the request, for Inspect. Others may be called so too; may be empty.
	ClientID string
	Model    string
	// Worker names one worker by its id; empty lets the router choose among those of Model.
	Worker  string
	Payload []byte
	Header  map[string]string // carried along; may be nil
	// FirstRecordTimeout and InactivityTimeout bound the wait for the first record (of each attempt) and between
	// records, exact to a quarter of a second; 0 = none. The deadline of Open's ctx bounds the whole response.
	FirstRecordTimeout time.Duration
	InactivityTimeout  time.Duration
	Trace              *OpenTrace // told of the steps of Open; may be nil
}

// Open chooses a worker, delivers the request, and returns the response once its first record or its end is there.
// Before the first record everything that may pass is tried again elsewhere, on another node where there is one, up to
// RetryLimit times: no responders, a refusal, no acknowledgement in time, a link that is down, a first record that does
// not come. Each attempt is a new stream, and the old one is killed first: two workers may run a request, only one is
// heard. Where no worker can be reached and a link is about to come, the request waits for it, as long as its first
// record and a link may take; that costs none of the RetryLimit. The error is an *Error, or ctx's.
//
// A response that completed without a record, and one that failed after its first record, are returned without an
// error.
func (f *Frontend) Open(ctx context.Context, req Request) (*Response, error) {
	if f.cfg.Deliverer == nil {
		return nil,
			errors.New("responseplane: Open needs FrontendConfig.Deliverer; with a request path of your own use Mint")
	}
	t := f.requests.begin(&req)
	r, err := f.open(ctx, req, t)
	if err != nil {
		f.requests.end(t, err)
		return nil, err
	}
	r.tracked = t
	return r, nil
}

// open is Open for a request that is tracked.
func (f *Frontend) open(ctx context.Context, req Request, t *tracked) (*Response, error) {
	var h tries
	defer func() { h.close() }()
	var last error
	var lastWhy reason
	patience := f.patience(req)
	for attempt, spent := 0, 0; ; attempt++ {
		req.Trace.route(attempt)
		w, err := f.pick(req, h, patience)
		if w == nil {
			w = f.awaitReturn(ctx, req, &h, &patience)
		}
		if w == nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			req.Trace.routed("", err)
			if last != nil && ctx.Err() == nil {
				err = last // why the ones that were there did not do says more
			}
			return nil, err
		}
		if last != nil {
			f.retries.add(lastWhy)
			f.cfg.Logger.Debug("an attempt failed; this is the next one", "request", req.ID, "worker", w.rec.ID,
				"attempt", attempt, "error", last)
		}
		r, err := f.attempt(ctx, w, req, t, &patience, func() bool {
			return spent < f.cfg.RetryLimit && f.elsewhere(req, h, w, patience)
		})
		if err == nil {
			r.retries = attempt
			return r, nil
		}
		failed := try{w: w, held: r}
		h = append(h, failed) // so that it is given back
		var e *Error
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !errors.As(err, &e) || !e.Retryable() {
			return nil, err
		}
		why := retryReason(e)
		failed.why = why
		h[len(h)-1] = failed
		f.blame(w, why, req.ID, err)
		// a link that is there and fails may do so for ever
		if !f.ofLink(why) || why == reasonNoLink && !f.stands(failed) {
			if spent >= f.cfg.RetryLimit {
				return nil, err
			}
			spent++
		}
		last, lastWhy = err, why
	}
}

// attempt is one stream at one worker. On failure the stream is given back, which kills it; but when the worker does
// not know the link it is returned with the error, and tells when the link has gone. elsewhere says whether another
// node can be had: without one there is nothing to give it up for while its link is down.
func (f *Frontend) attempt(ctx context.Context, w *workerEntry, req Request, t *tracked, left *time.Duration,
	elsewhere func() bool,
) (*Response, error) {
	in, err := f.mint(ctx, w, req, left, elsewhere)
	req.Trace.routed(w.rec.ID, err)
	if err != nil {
		return nil, err
	}
	w.open.Add(1)
	t.attempt(w, in, f.requests.now())
	r := &Response{in: in, f: f, node: w.node, name: w.rec.Node.Name, worker: w, request: req.ID}
	r.deadline, _ = ctx.Deadline()
	req.Header = req.Trace.deliver(req.Header)
	err = f.deliver(ctx, w, r, req)
	req.Trace.delivered(err)
	if isStale(err) {
		t.settle(err)
		return r, err
	}
	if err == nil {
		err = r.first(ctx, elsewhere)
		req.Trace.firstRecord(err)
	}
	if err != nil {
		_ = r.Close()
		t.settle(err)
		return nil, err
	}
	return r, nil
}

// mint mints the stream of an attempt. A node that is dialled on demand has the time of an acknowledgement for that;
// where there is no other, it has as long as the request may still wait for a link.
func (f *Frontend) mint(ctx context.Context, w *workerEntry, req Request, left *time.Duration, elsewhere func() bool) (
	*mux.InStream, error,
) {
	o := mux.MintOptions{FirstRecord: req.FirstRecordTimeout, Inactivity: req.InactivityTimeout}
	if d, ok := ctx.Deadline(); ok {
		o.TimeLeft = max(time.Until(d), time.Microsecond)
	}
	if f.cfg.Dial == DialOnDemand && !f.recv.Up(w.node) {
		limit := *left
		if elsewhere() {
			limit = min(limit, f.cfg.AckTimeout)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
		begun := time.Now()
		defer func() { *left -= time.Since(begun) }()
	}
	in, err := f.recv.Mint(ctx, w.node, o)
	if err != nil {
		return nil, asMint(err, w.rec.ID, w.node)
	}
	return in, nil
}

// first waits for the first record, or the end of a response that completed without one. Every other end is its error.
func (r *Response) first(ctx context.Context, elsewhere func() bool) error {
	err := r.in.Wait(ctx)
	if errors.Is(err, mux.ErrLinkDown) && !elsewhere() {
		err = r.in.WaitOn(ctx)
	}
	if err != nil {
		if errors.Is(err, mux.ErrLinkDown) {
			return &Error{Kind: EndLost, Text: err.Error(), Worker: r.worker.rec.ID, Node: r.node, cause: err}
		}
		return err
	}
	if end := r.in.End(); end != nil && end.Type != mux.EndComplete && end.Records == 0 {
		return r.ended(end)
	}
	return nil
}

// deliver hands the request over and takes the acknowledgement. A stream that the worker has opened meanwhile is
// acknowledged, whatever became of the reply.
func (f *Frontend) deliver(ctx context.Context, w *workerEntry, r *Response, req Request) error {
	actx, cancel := context.WithTimeout(ctx, f.cfg.AckTimeout)
	defer cancel()
	reply, err := f.cfg.Deliverer.Deliver(actx, w.rec.ID, discovery.Request{ID: req.ID, Terms: r.Terms(),
		Payload: req.Payload, Header: req.Header})
	if err != nil {
		if r.in.Opened() {
			return nil
		}
		return f.asDelivery(ctx, w, err)
	}
	code := CodeBadRequest
	switch reply.Answer {
	case discovery.Accepted:
		return nil
	case discovery.Busy:
		code = CodeBusy
	case discovery.Draining:
		code = CodeDraining
	case discovery.Stale:
		code = CodeNoWorker
	case discovery.Unsupported:
		code = CodeUnsupported
	}
	return refusal(code, w.rec.ID, w.node, reply.Reason, nil)
}

func (f *Frontend) asDelivery(ctx context.Context, w *workerEntry, err error) error {
	var size *discovery.SizeError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &size):
		return refusal(CodeTooLarge, w.rec.ID, w.node, err.Error(), err)
	case isContext(err):
		return refusal(CodeNoWorker, w.rec.ID, w.node, fmt.Sprintf("no acknowledgement in %v", f.cfg.AckTimeout), err)
	}
	return refusal(CodeNoWorker, w.rec.ID, w.node, err.Error(), err)
}

// pick chooses a worker for the next attempt: on another node than those that failed it, where there is one, and none
// twice, unless there is only one. One that has to be dialled first is for a request that may still wait for a link:
// left says how long.
func (f *Frontend) pick(req Request, h tries, left time.Duration) (*workerEntry, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	list := f.candidates(req)
	if len(list) == 0 {
		what := fmt.Sprintf("model %q", req.Model)
		if req.Worker != "" {
			what = fmt.Sprintf("worker %q", req.Worker)
		}
		return nil, refusal(CodeNoWorker, req.Worker, NodeID{}, "no worker is known for "+what, nil)
	}
	worst := rankFailedNode
	if len(list) == 1 {
		worst = rankTried
	}
	now, dials := time.Now(), f.cfg.Dial == DialOnDemand && left > 0
	w := f.choose(list, func(w *workerEntry) rank {
		at := f.rank(w, h, now)
		if at > worst || !f.recv.Up(w.node) && (!dials || at == rankVanished) {
			return rankNone
		}
		return at
	})
	if w == nil {
		none := fmt.Sprintf("none of %d workers can be reached", len(list))
		return nil, refusal(CodeNoWorker, req.Worker, NodeID{}, none, nil)
	}
	return w, nil
}

// choose applies the policy to the workers of the best rank that any has.
func (f *Frontend) choose(list []*workerEntry, rankOf func(*workerEntry) rank) *workerEntry {
	n := len(list)
	start := rand.IntN(n)
	if f.cfg.Router == RouterRoundRobin {
		start = int(f.turn.Add(1) % uint64(n))
	}
	if f.cfg.Router == RouterLeastLoaded && n > 2 {
		// Two random ones, the less loaded of them; a few tries before looking at all.
		for range 4 {
			a, b := list[rand.IntN(n)], list[rand.IntN(n)]
			if b.open.Load() < a.open.Load() {
				a, b = b, a
			}
			if rankOf(a) == rankGood {
				return a
			}
			if rankOf(b) == rankGood {
				return b
			}
		}
	}
	var best *workerEntry
	lowest := rankNone
	for i := range n {
		w := list[(start+i)%n]
		at := rankOf(w)
		switch {
		case at < lowest:
		case at == lowest && best != nil && f.cfg.Router == RouterLeastLoaded && w.open.Load() < best.open.Load():
		default:
			continue
		}
		if best, lowest = w, at; at == rankGood && f.cfg.Router != RouterLeastLoaded {
			break
		}
	}
	return best
}
