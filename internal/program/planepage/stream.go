package planepage

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// Stream is a request and its stream, as JSON and as a page. Times are since the request began where the name says age.
type Stream struct {
	Request string     `json:"request"`                     // the frontend's own name for it, unique
	Client  string     `json:"client_request_id,omitempty"` // the client's, which several may have
	Matches int        `json:"matches"`                     // how many have the id that was asked for; this is the newest
	Also    []Other    `json:"also"`                        // the newest of the others
	Model   string     `json:"model"`
	State   string     `json:"state"` // routing, waiting, streaming, ended
	Began   time.Time  `json:"began"`
	Ended   *time.Time `json:"ended,omitempty"`
	Worker  string     `json:"worker,omitempty"` // of the last attempt
	Process string     `json:"process,omitempty"`
	Node    string     `json:"node,omitempty"`
	// Slot, Generation, Number and Link name the stream on the wire; see docs/wire.md.
	Slot        uint32     `json:"slot,omitempty"`
	Generation  uint8      `json:"generation,omitempty"`
	Number      uint64     `json:"number,omitempty"`
	Link        uint64     `json:"link,omitempty"`
	StreamState string     `json:"stream_state,omitempty"` // minted, live, closing, ended
	StopAsked   bool       `json:"stop_asked"`
	Offsets     *Offsets   `json:"offsets,omitempty"`
	Records     uint64     `json:"records"`
	Bytes       uint64     `json:"bytes"`
	FirstAge    *float64   `json:"first_record_ms,omitempty"` // from the attempt to its first record
	LastAge     *float64   `json:"last_record_ms,omitempty"`
	Moves       uint32     `json:"moves"`
	Lanes       []LaneStay `json:"lanes"`
	Heads       []Head     `json:"last_headers"`
	End         *End       `json:"end,omitempty"`
	Attempts    []Attempt  `json:"attempts"`
}

// Other is another request with the id that was asked for.
type Other struct {
	Request string    `json:"request"`
	State   string    `json:"state"`
	Began   time.Time `json:"began"`
}

// Offsets are places in the stream's string of bytes, headers included.
type Offsets struct {
	Received uint64 `json:"received"`
	Consumed uint64 `json:"consumed"`
	Reported uint64 `json:"reported"` // what the worker was told is consumed
	Window   uint64 `json:"window"`
	Buffered int    `json:"buffered"`
}

// LaneStay is the stream's time on one lane.
type LaneStay struct {
	Plane  string     `json:"plane"`
	Lane   int        `json:"lane"`
	Serial uint64     `json:"serial"`
	Remote string     `json:"remote,omitempty"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"`
}

// Head is the header of a record from the worker.
type Head struct {
	Kind   string  `json:"kind"`
	Length int     `json:"length"`
	Offset uint64  `json:"offset"`
	Age    float64 `json:"age_ms"` // since the stream was minted
}

// End is how the request ended.
type End struct {
	Type      string `json:"type"`
	Code      string `json:"code,omitempty"`
	Text      string `json:"text,omitempty"`
	Retryable bool   `json:"retryable"`
}

// Attempt is one stream at one worker.
type Attempt struct {
	Worker  string  `json:"worker"`
	Process string  `json:"process"`
	Node    string  `json:"node"`
	Age     float64 `json:"age_ms"` // of the request when it began
	Error   string  `json:"error,omitempty"`
}

// Newest is how many of the requests with one id are named.
const Newest = 100

// NewStream turns what the plane knows into what is shown: the newest of the requests with the id that was asked for,
// of which there are so many.
func NewStream(newest []responseplane.RequestInfo, matches int) *Stream {
	i := newest[0]
	s := &Stream{Request: i.ID, Client: i.ClientID, Matches: matches, Also: make([]Other, 0, len(newest)-1),
		Model: i.Model, State: i.State, Began: i.Began, Ended: someTime(i.Ended), Lanes: []LaneStay{}, Heads: []Head{},
		Attempts: []Attempt{}}
	for _, o := range newest[1:] {
		s.Also = append(s.Also, Other{Request: o.ID, State: o.State, Began: o.Began})
	}
	for _, a := range i.Attempts {
		v := Attempt{Worker: a.Worker, Process: a.Name, Node: a.Node.String(), Age: ms(a.Began.Sub(i.Began))}
		if a.Err != nil {
			v.Error = a.Err.Error()
		}
		s.Attempts = append(s.Attempts, v)
		s.Worker, s.Process, s.Node = a.Worker, a.Name, v.Node
	}
	if i.Stream != nil && len(i.Attempts) > 0 {
		s.stream(i.Stream, i.Attempts[len(i.Attempts)-1].Began)
	}
	if i.Err != nil {
		s.End = failure(i.Err)
	}
	return s
}

func (s *Stream) stream(i *responseplane.StreamInfo, began time.Time) {
	s.Slot, s.Generation, s.Number, s.Link, s.StreamState, s.StopAsked = i.Slot, i.Generation, i.Number, i.Link,
		i.State, i.StopAsked
	s.Offsets = &Offsets{Received: i.Received, Consumed: i.Consumed, Reported: i.Reported, Window: i.Window,
		Buffered: i.Buffered}
	s.Records, s.Bytes, s.Moves = i.Records, i.Bytes, i.Moves
	if i.Records > 0 {
		first, last := ms(i.First.Sub(began)), ms(i.Last.Sub(began))
		s.FirstAge, s.LastAge = &first, &last
	}
	for _, l := range i.Lanes {
		s.Lanes = append(s.Lanes, LaneStay{Plane: l.Plane, Lane: l.Lane, Serial: l.Serial, Remote: l.Remote,
			Since: l.From, Until: someTime(l.To)})
	}
	for _, h := range i.Heads() {
		s.Heads = append(s.Heads, Head{Kind: h.Kind, Length: h.Length, Offset: h.Offset, Age: ms(h.Age)})
	}
	if e := i.End; e != nil {
		s.End = &End{Type: responseplane.EndKind(e.Type).String(), Code: responseplane.Code(e.Code).String(),
			Text: e.Text, Retryable: e.Retryable}
	}
}

// failure is the end of a request that no worker served.
func failure(err error) *End {
	var e *responseplane.Error
	if errors.As(err, &e) {
		return &End{Type: e.Kind.String(), Code: e.Code.String(), Text: e.Text, Retryable: e.Retryable()}
	}
	return &End{Type: responseplane.EndKilled.String(), Text: err.Error()} // the client left, or its time was up
}

func someTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Page lays it out.
func (s *Stream) Page(refresh *Refresh) *Page {
	p := &Page{Title: "Request " + s.Request, Back: Link{PlanePath, "The whole plane"}, Refresh: refresh,
		Sub: "Model " + s.Model + ", began " + s.Began.Format(stamp) + "."}
	if s.Ended != nil {
		p.Sub += fmt.Sprintf(" Ended %s later; what is here is kept for a minute after that.",
			span(s.Ended.Sub(s.Began)))
	}
	p.Tiles = []Fact{{Name: "state", Value: s.State}, {Name: "records", Value: thousands(s.Records)},
		{Name: "payload", Value: size(s.Bytes)}}
	if s.FirstAge != nil {
		p.Tiles = append(p.Tiles, Fact{Name: "first record after", Value: span(fromMS(*s.FirstAge))})
	}
	if s.End != nil {
		p.Tiles = append(p.Tiles, Fact{Name: "end", Value: s.End.Type,
			Bad: s.End.Type != responseplane.EndComplete.String()})
	}
	where := Section{ID: "where", Title: "Worker and end", Facts: []Fact{{Name: "worker", Value: orDash(s.Worker)},
		{Name: "process", Value: orDash(s.Process)}, {Name: "node", Value: orDash(s.Node)}}}
	if s.End != nil {
		where.Facts = append(where.Facts, Fact{Name: "end", Value: s.End.Type},
			Fact{Name: "code", Value: orDash(s.End.Code)}, Fact{Name: "why", Value: orDash(s.End.Text)},
			Fact{Name: "worth another attempt", Value: strconv.FormatBool(s.End.Retryable)})
	}
	tries := Table{Summary: "Attempts, " + thousands(len(s.Attempts)), Open: true, Left: 3,
		Heads: []string{"worker", "process", "outcome", "began after"}}
	for _, a := range s.Attempts {
		tries.Rows = append(tries.Rows, []Cell{{Text: a.Worker}, {Text: a.Process},
			{Text: orDash(a.Error), Bad: a.Error != ""}, {Text: span(fromMS(a.Age))}})
	}
	where.Tables = []Table{tries}
	if s.Client != "" {
		where.Facts = append(where.Facts, Fact{Name: "the client's id", Value: s.Client})
	}
	if s.Matches > 1 {
		others := Table{Summary: "Other requests with this id, " + thousands(s.Matches-1), Open: true, Left: 2,
			Heads: []string{"request", "state", "began"}}
		for _, o := range s.Also {
			others.Rows = append(others.Rows, []Cell{{Text: orDash(o.Request), To: StreamPath(o.Request)},
				{Text: o.State}, {Text: o.Began.Format(stamp)}})
		}
		if n := s.Matches - 1 - len(s.Also); n > 0 {
			others.More = thousands(n) + " that are older are not named."
		}
		where.Tables = append(where.Tables, others)
	}
	p.Sections = []Section{where}
	if s.Offsets == nil {
		return p
	}
	o := s.Offsets
	stream := Section{ID: "stream", Title: "Stream", Said: "Offsets count the bytes of the stream, headers included.",
		Facts: []Fact{
			{Name: "state of the stream", Value: s.StreamState}, {Name: "received", Value: thousands(o.Received)},
			{Name: "consumed", Value: thousands(o.Consumed)},
			{Name: "consumed, as the worker was told", Value: thousands(o.Reported)},
			{Name: "window", Value: thousands(o.Window)},
			{Name: "window in use", Value: thousands(o.Received - min(o.Reported, o.Received))},
			{Name: "waits for the client", Value: size(o.Buffered)},
			{Name: "STOP was asked for", Value: strconv.FormatBool(s.StopAsked)}, {Name: "moves to another lane",
				Value: thousands(int(s.Moves))},
			{Name: "slot, generation", Value: fmt.Sprintf("%d, %d", s.Slot, s.Generation)},
			{Name: "number", Value: fmt.Sprint(s.Number)}, {Name: "link", Value: fmt.Sprint(s.Link)},
		}}
	lanes := Table{Summary: "Lanes that it was on, the last one last", Open: true, Left: 2,
		Heads: []string{"plane", "remote", "lane", "serial", "since", "until"}}
	for _, l := range s.Lanes {
		until := "now"
		if l.Until != nil {
			until = l.Until.Format(stamp)
		} else if s.Ended != nil {
			until = "the end"
		}
		lanes.Rows = append(lanes.Rows, []Cell{{Text: l.Plane}, {Text: l.Remote}, {Text: strconv.Itoa(l.Lane)},
			{Text: fmt.Sprint(l.Serial)}, {Text: l.Since.Format(stamp)}, {Text: until}})
	}
	heads := Table{Summary: "Headers of the last records, " + thousands(len(s.Heads)), Open: true, Left: 1,
		Heads: []string{"kind", "length", "offset", "time"},
		More:  "Time is since the stream was minted; offset is that of the header."}
	for _, h := range s.Heads {
		heads.Rows = append(heads.Rows, []Cell{{Text: h.Kind}, {Text: thousands(h.Length)}, {Text: thousands(h.Offset)},
			{Text: span(fromMS(h.Age))}})
	}
	stream.Tables = []Table{lanes, heads}
	p.Sections = append(p.Sections, stream)
	return p
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Missing is the page of a request that is not known.
func Missing(id string) *Page {
	return &Page{Title: "Unknown request", Back: Link{PlanePath, "The whole plane"}, Sub: MissingText(id),
		Sections: []Section{{ID: "again", Title: "Another one", Form: &Form{Action: StreamsPath, Name: "id",
			Label: "Request id (the response's x-request-id)", Button: "Look at it"}}}}
}

// MissingText says why a request is not known.
func MissingText(id string) string {
	return fmt.Sprintf("No request %q: this frontend knows those that are open and those that ended in the last "+
		"minute (the newest %d). The id is the response's x-request-id header.", clip(id), responseplane.MaxEnded)
}
