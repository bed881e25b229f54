package responseplane

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/mux"
)

// StreamInfo describes the stream of a response: state, lanes, offsets, the headers of its last records, its end.
type StreamInfo = mux.StreamInfo

const (
	// KeepEnded is how long a request of Open can be looked at after its end.
	KeepEnded = time.Minute
	// MaxEnded is how many such requests a Frontend keeps at most (FrontendConfig.KeepEnded), of some 900 bytes each;
	// the one that ended first goes.
	MaxEnded = 16384
)

// States of a request.
const (
	RequestRouting   = "routing"   // it has no stream: a worker is looked for
	RequestWaiting   = "waiting"   // for the first record
	RequestStreaming = "streaming" // records came
	RequestEnded     = "ended"     // the Response was closed, or Open has failed
)

// RequestInfo describes one request of Open.
type RequestInfo struct {
	ID, ClientID, Model string

	State    string // one of the Request constants
	Began    time.Time
	Ended    time.Time // zero while it is open
	Attempts []AttemptInfo
	// Stream is that of the last attempt, nil when there was none. It has no trailer.
	Stream *StreamInfo
	// Err is what Open failed with, nil when it gave a Response. The end of a Response is Stream.End.
	Err error
}

// AttemptInfo is one stream at one worker.
type AttemptInfo struct {
	Worker string
	Node   NodeID
	Name   string // of the worker's process
	Began  time.Time
	Err    error // why the next one was made, or why Open gave up; nil for the one that was heard
}

// tracked is one request of Open, from its begin to KeepEnded after its end.
type tracked struct {
	id, client, model string
	began             time.Time

	mu       sync.Mutex
	attempts []AttemptInfo
	stream   *mux.InStream // of the last attempt; nil before and after
	left     *StreamInfo   // of the last attempt once it has ended
	ended    time.Time
	err      error
}

// attempt notes the stream of a new attempt.
func (t *tracked) attempt(w *workerEntry, in *mux.InStream, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stream, t.left = in, nil
	t.attempts = append(t.attempts, AttemptInfo{Worker: w.rec.ID, Node: w.node, Name: w.rec.Node.Name, Began: now})
}

// settle notes that the last attempt is over, whose stream is closed.
func (t *tracked) settle(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stream == nil {
		return // it was not minted
	}
	info := t.stream.Inspect()
	if info.End != nil {
		info.End.Trailer = nil // it may be large
	}
	t.stream, t.left = nil, &info
	t.attempts[len(t.attempts)-1].Err = err
}

func (t *tracked) info() RequestInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := RequestInfo{ID: t.id, ClientID: t.client, Model: t.model, State: RequestRouting, Began: t.began,
		Ended: t.ended, Attempts: slices.Clone(t.attempts), Stream: t.left, Err: t.err}
	if t.stream != nil {
		s := t.stream.Inspect()
		if s.End != nil {
			s.End.Trailer = nil
		}
		i.Stream, i.State = &s, requestState(s.Records)
	}
	if !t.ended.IsZero() {
		i.State = RequestEnded
	}
	return i
}

func requestState(records uint64) string {
	if records > 0 {
		return RequestStreaming
	}
	return RequestWaiting
}

// requests are a Frontend's, for Inspect and Load. It is asked a few times a request, never for a record.
type requests struct {
	now func() time.Time

	mu    sync.Mutex
	open  map[*tracked]struct{}
	most  int        // of ended
	ended []*tracked // in the order of their ends
	head  int        // of ended: what is before it has gone
}

// newRequests keeps most ended requests: 0 means MaxEnded, negative none.
func newRequests(now func() time.Time, most int) *requests {
	if most == 0 {
		most = MaxEnded
	}
	return &requests{now: now, most: max(most, 0), open: make(map[*tracked]struct{})}
}

func (q *requests) begin(req *Request) *tracked {
	t := &tracked{id: req.ID, client: req.ClientID, model: req.Model, began: q.now()}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.open[t] = struct{}{}
	return t
}

// end says that a request has ended; err is Open's. It is called once.
func (q *requests) end(t *tracked, err error) {
	now := q.now()
	t.mu.Lock()
	t.ended, t.err = now, err
	t.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, t)
	q.ended = append(q.ended, t)
	q.expire(now)
}

// expire forgets what ended too long ago, and the oldest of too many. The lock is held.
func (q *requests) expire(now time.Time) {
	for ; q.head < len(q.ended); q.head++ {
		t := q.ended[q.head]
		if len(q.ended)-q.head <= q.most && now.Sub(t.ended) < KeepEnded { // ended is not written any more
			break
		}
		q.ended[q.head] = nil
	}
	if q.head > 1024 && q.head > len(q.ended)/2 || q.head == len(q.ended) {
		n := copy(q.ended, q.ended[q.head:])
		clear(q.ended[n:])
		q.ended, q.head = q.ended[:n], 0
	}
}

// sweep forgets what ended too long ago, so that it holds no memory until the next request.
func (q *requests) sweep() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(q.now())
}

// find looks at each request: whoever asks is a person, and an index would cost every request.
func (q *requests) find(id string) []*tracked {
	if id == "" {
		return nil
	}
	open, ended := q.all()
	all := slices.DeleteFunc(append(open, ended...), func(t *tracked) bool { return t.id != id && t.client != id })
	slices.SortStableFunc(all,
		func(a, b *tracked) int { return cmp.Or(b.began.Compare(a.began), cmp.Compare(a.id, b.id)) })
	return all
}

// all are the requests that are open and those that are kept.
func (q *requests) all() (open, ended []*tracked) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(q.now())
	open = make([]*tracked, 0, len(q.open))
	for t := range q.open {
		open = append(open, t)
	}
	return open, slices.Clone(q.ended[q.head:])
}

// Inspect describes a request of Open by its Request.ID, while it is open and for KeepEnded after its end, as long as
// no more than MaxEnded ended after it. Of several requests with one id it is the newest.
func (f *Frontend) Inspect(id string) (RequestInfo, bool) {
	newest, n := f.Find(id, 1)
	if n == 0 {
		return RequestInfo{}, false
	}
	return newest[0], true
}

// Find is Inspect for all requests whose Request.ID or ClientID is id: it describes the newest, at most so many, the
// newest first, and says how many there are.
func (f *Frontend) Find(id string, most int) (newest []RequestInfo, n int) {
	all := f.requests.find(id)
	for _, t := range all[:min(max(most, 0), len(all))] {
		newest = append(newest, t.info())
	}
	return newest, len(all)
}

// Inspect describes the response's stream.
func (r *Response) Inspect() StreamInfo { return r.in.Inspect() }

// ProcessLoad is how one worker process does for this Frontend.
type ProcessLoad struct {
	Node    NodeID
	Name    string
	Waiting int // open requests without a record
	// LongestWait is the age of the oldest of those, 0 when there is none.
	LongestWait time.Duration
	Streaming   int // open requests with records
	// First counts the requests whose first record came, of those that are open or were kept after their end; MeanFirst
	// is the mean time from the attempt to that record.
	First     int
	MeanFirst time.Duration
}

// RequestBrief is one line about an open request.
type RequestBrief struct {
	ID, Model, State, Worker, Name string
	Age                            time.Duration
	Records                        uint64
	Silent                         time.Duration // since the last record, or the begin of the attempt
}

// Load is how the requests of Open do, by worker process.
type Load struct {
	Processes []ProcessLoad // that have or had requests, by name
	// Open requests by state.
	Routing, Waiting, Streaming int
	// Kept is how many ended requests can be looked at.
	Kept int
	// ITL is the median of the mean times between two records of a request, over all that have at least 2; 0 when there
	// is none.
	ITL time.Duration
	// Silent are the open requests that have been without a record for longest, the longest first.
	Silent []RequestBrief
}

// Load describes all requests of Open that are open, and counts those that ended lately. It visits each once. silent is
// how many single ones to name.
func (f *Frontend) Load(silent int) Load {
	open, ended := f.requests.all()
	now := f.requests.now()
	sum := loadSum{by: make(map[NodeID]*ProcessLoad)}
	for _, t := range open {
		sum.open(t, now)
	}
	for _, t := range ended {
		sum.ended(t)
	}
	sum.Kept = len(ended)
	return sum.load(silent)
}

type loadSum struct {
	Load
	by     map[NodeID]*ProcessLoad
	itls   []time.Duration
	briefs []RequestBrief
}

func (s *loadSum) process(a *AttemptInfo) *ProcessLoad {
	p := s.by[a.Node]
	if p == nil {
		p = &ProcessLoad{Node: a.Node, Name: a.Name}
		s.by[a.Node] = p
	}
	return p
}

func (s *loadSum) open(t *tracked, now time.Time) {
	b := RequestBrief{ID: t.id, Model: t.model, State: RequestRouting, Age: now.Sub(t.began), Silent: now.Sub(t.began)}
	t.mu.Lock()
	stream := t.stream
	var a AttemptInfo
	if stream != nil {
		a = t.attempts[len(t.attempts)-1]
	}
	t.mu.Unlock()
	if stream == nil {
		s.Routing++
		s.briefs = append(s.briefs, b)
		return
	}
	g := stream.Progress()
	p := s.process(&a)
	b.State, b.Worker, b.Name, b.Records = requestState(g.Records), a.Worker, a.Name, g.Records
	if g.Records == 0 {
		s.Waiting++
		p.Waiting++
		b.Silent = now.Sub(a.Began)
		p.LongestWait = max(p.LongestWait, b.Silent)
	} else {
		s.Streaming++
		p.Streaming++
		b.Silent = now.Sub(g.Last)
		s.answered(p, g.First.Sub(a.Began), g.Records, g.Last.Sub(g.First))
	}
	s.briefs = append(s.briefs, b)
}

func (s *loadSum) ended(t *tracked) {
	t.mu.Lock()
	left, n := t.left, len(t.attempts)
	t.mu.Unlock()
	if left == nil || left.Records == 0 {
		return
	}
	a := &t.attempts[n-1] // not written any more
	s.answered(s.process(a), left.First.Sub(a.Began), left.Records, left.Last.Sub(left.First))
}

func (s *loadSum) answered(p *ProcessLoad, first time.Duration, records uint64, rest time.Duration) {
	p.First++
	p.MeanFirst += max(first, 0) // a sum until load divides
	if records > 1 {
		s.itls = append(s.itls, rest/time.Duration(records-1))
	}
}

func (s *loadSum) load(silent int) Load {
	for _, p := range s.by {
		if p.First > 0 {
			p.MeanFirst /= time.Duration(p.First)
		}
		s.Processes = append(s.Processes, *p)
	}
	slices.SortFunc(s.Processes, func(a, b ProcessLoad) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.Node[:], b.Node[:]))
	})
	if n := len(s.itls); n > 0 {
		slices.Sort(s.itls)
		s.ITL = s.itls[(n-1)/2]
	}
	slices.SortFunc(s.briefs,
		func(a, b RequestBrief) int { return cmp.Or(cmp.Compare(b.Silent, a.Silent), cmp.Compare(a.ID, b.ID)) })
	s.Silent = slices.Clone(s.briefs[:min(max(silent, 0), len(s.briefs))])
	return s.Load
}
