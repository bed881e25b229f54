package planepage

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// Paths of the pages.
const (
	PlanePath   = "/debug/plane"
	StreamsPath = "/debug/plane/streams"
)

// StreamPath is the address of a request's page.
func StreamPath(id string) string { return StreamsPath + "/" + url.PathEscape(id) }

// Silent is how many single open requests the page names.
const Silent = 10

// Frontend is what a frontend's page shows.
type Frontend struct {
	Process         string
	NotReady        string // why not; empty when it is
	At              time.Time
	Open            int // requests that are being served
	Models          []string
	OutPath, NoRing string // the out path in force, and why not io_uring
	Workers         []responseplane.WorkerStatus
	Stats           responseplane.Stats
	Load            responseplane.Load
	Loads           []ProcessLoad
	Rates           Rates
	Sockets         []transport.SocketInfo
	Settings        []planeflags.Setting
	Config          map[string]string
	Refresh         *Refresh
}

// Page lays it out.
func (f *Frontend) Page() *Page {
	known, reachable := 0, 0
	for i := range f.Workers {
		if w := &f.Workers[i]; !w.Vanished {
			known++
			if w.Reachable {
				reachable++
			}
		}
	}
	p := &Page{Title: "Laneway frontend " + f.Process, Sub: "The response plane at " + f.At.Format(stamp) +
		". Models: " + cmp.Or(strings.Join(f.Models, ", "), "none") + ".", Refresh: f.Refresh}
	if f.NotReady != "" {
		p.Alerts = append(p.Alerts, "Not ready: "+f.NotReady)
	}
	if n := known - reachable; n > 0 {
		p.Alerts = append(p.Alerts, count(n, "worker", "workers")+" of "+thousands(known)+
			" cannot be reached; the table of worker processes says why.")
	}
	holders := Holders(f.Loads)
	p.Tiles = []Fact{
		{Name: "open requests", Value: thousands(f.Open)},
		{Name: "workers reachable", Value: thousands(reachable) + " of " + thousands(known), Bad: reachable < known},
		{Name: "links, lanes", Value: thousands(f.Stats.Links) + ", " + thousands(len(f.Stats.Lanes))},
		{Name: "records a second", Value: rate(f.Rates.RecordsIn)},
		{Name: "bytes a second", Value: size(int64(f.Rates.BytesIn))},
		{Name: "ended a second", Value: rate(f.Rates.Ended)},
		{Name: "holders", Value: thousands(holders) + " of " + thousands(len(f.Loads)), Bad: holders > 0},
		{Name: "out path", Value: f.OutPath},
	}
	p.Sections = []Section{f.load(), f.streams(), ratesSection(f.Rates, f.Stats), f.processes(),
		lanesSection(f.Stats.Lanes, f.Sockets, true), socketsSection(f.Sockets),
		f.trouble(), settingsSection(f.Settings, f.Config, f.outPath())}
	return p
}

func (f *Frontend) outPath() []Fact {
	out := []Fact{{Name: "out path in force", Value: f.OutPath}}
	if f.NoRing != "" {
		out = append(out, Fact{Name: "no io_uring", Value: f.NoRing})
	}
	return out
}

func (f *Frontend) load() Section {
	lines, left := picture(f.Loads)
	s := Section{ID: "load", Title: "Load by worker process", Loads: lines,
		Said: "Open responses (those that wait for their first record behind those that stream), and the mean time " +
			"to the first record of the responses that are open or ended in the last minute. " +
			"A holder's mean is at least a quarter of the slowest's, and above the median process's by 3 times or 3 " +
			"inter-token latencies, whichever is more." + left}
	if f.Load.ITL > 0 {
		s.Said += " The median inter-token latency is " + span(f.Load.ITL) + "."
	}
	if len(lines) == 0 {
		s.Said = "No worker process is known."
	}
	return s
}

func (f *Frontend) streams() Section {
	s := Section{ID: "streams", Title: "Streams", Facts: []Fact{
		{Name: "looking for a worker", Value: thousands(f.Load.Routing)},
		{Name: "waiting for the first record", Value: thousands(f.Load.Waiting)},
		{Name: "streaming", Value: thousands(f.Load.Streaming)},
		{Name: "closing (the worker's END is awaited)", Value: thousands(f.Stats.ClosingSlots)},
		{Name: "slots taken", Value: thousands(f.Stats.OpenStreams)},
		{Name: "opened", Value: thousands(f.Stats.StreamsOpened)},
		{Name: "lanes taken over", Value: thousands(takeovers(&f.Stats))},
		{Name: "windows given", Value: size(f.Stats.CommittedBytes)},
		{Name: "waits for clients", Value: size(f.Stats.BufferedBytes)},
		{Name: "ended, can still be looked at", Value: thousands(f.Load.Kept)},
	}}
	for _, k := range sortedKeys(f.Stats.StreamsEnded) {
		s.Facts = append(s.Facts, Fact{Name: "ended as " + k, Value: thousands(f.Stats.StreamsEnded[k])})
	}
	s.Form = &Form{Action: StreamsPath, Name: "id", Label: "Request id (the response's x-request-id)",
		Button: "Look at it"}
	t := Table{Summary: "Open requests that have been silent for longest, " + thousands(len(f.Load.Silent)) + " of " +
		thousands(f.Load.Routing+f.Load.Waiting+f.Load.Streaming),
		Open: true, Heads: []string{"request", "state", "worker", "process", "silent", "age", "records"}, Left: 4}
	for _, b := range f.Load.Silent {
		c := Cell{Text: cmp.Or(b.ID, "(no id)")}
		if b.ID != "" {
			c.To = StreamPath(b.ID)
		}
		t.Rows = append(t.Rows, []Cell{c, {Text: b.State}, {Text: b.Worker}, {Text: b.Name}, {Text: span(b.Silent)},
			{Text: span(b.Age)}, {Text: thousands(b.Records)}})
	}
	s.Tables = []Table{t}
	return s
}

func (f *Frontend) processes() Section {
	type sum struct {
		lanes, queue int
		streams      int64
		rtt          time.Duration
	}
	lanes := map[string]*sum{}
	for i := range f.Stats.Lanes {
		l := &f.Stats.Lanes[i]
		v := lanes[l.Peer.String()]
		if v == nil {
			v = &sum{}
			lanes[l.Peer.String()] = v
		}
		v.lanes++
		v.queue += l.QueueBytes
		v.streams += l.Streams
		v.rtt = max(v.rtt, l.RTT)
	}
	procs := Table{Summary: "Links, one to each of " + count(len(f.Loads), "worker process", "worker processes"),
		Open: len(f.Loads) <= 32, Left: 2,
		Heads: []string{"process", "state", "plane", "workers", "reachable", "avoided", "lanes", "streams", "queue",
			"RTT", "node"}}
	for i := range f.Loads {
		p := &f.Loads[i]
		v := lanes[p.Node]
		if v == nil {
			v = &sum{}
		}
		state := Cell{Text: "up"}
		switch {
		case p.Err != "":
			state = Cell{Text: p.Err, Bad: true}
		case p.Fallback != "":
			state = Cell{Text: "fallback: " + p.Fallback, Bad: true}
		case p.Vanished > 0:
			state = Cell{Text: "record gone", Bad: true}
		case p.Workers == 0:
			state = Cell{Text: "no worker known", Bad: true}
		case p.Reachable < p.Workers:
			state = Cell{Text: "no link, or it drains", Bad: true}
		}
		procs.Rows = append(procs.Rows, []Cell{{Text: p.Process}, state, {Text: p.Plane}, {Text: thousands(p.Workers)},
			{Text: thousands(p.Reachable), Bad: p.Reachable < p.Workers},
			{Text: thousands(p.Avoided), Bad: p.Avoided > 0}, {Text: thousands(v.lanes)}, {Text: thousands(v.streams)},
			{Text: size(v.queue)}, {Text: rtt(v.rtt)}, {Text: p.Node}})
	}
	workers := Table{Summary: "Workers, " + thousands(len(f.Workers)) + ", in trouble first, then the busiest", Left: 4,
		Heads: []string{"worker", "process", "models", "state", "open"}}
	sorted := slices.Clone(f.Workers)
	bad := func(w *responseplane.WorkerStatus) int {
		if !w.Reachable || w.Avoided || w.Vanished {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(sorted, func(a, b responseplane.WorkerStatus) int {
		return cmp.Or(cmp.Compare(bad(&a), bad(&b)), cmp.Compare(b.Open, a.Open))
	})
	for i := range sorted {
		w := &sorted[i]
		state := Cell{Text: "reachable"}
		switch {
		case w.Err != "":
			state = Cell{Text: w.Err, Bad: true}
		case !w.Reachable:
			state = Cell{Text: "not reachable", Bad: true}
		case w.Vanished:
			state = Cell{Text: "its record has gone", Bad: true}
		case w.Avoided:
			state = Cell{Text: "avoided: it failed a moment ago", Bad: true}
		}
		workers.Rows = append(workers.Rows, []Cell{{Text: w.ID}, {Text: w.Name}, {Text: strings.Join(w.Models, ", ")},
			state, {Text: thousands(w.Open)}})
	}
	return Section{ID: "workers", Title: "Workers and links", Tables: []Table{procs, workers}}
}

// trouble is what should not be, or should be rare.
func (f *Frontend) trouble() Section {
	s := Section{ID: "trouble", Title: "Fallbacks, refusals, deaths and drops",
		Said: "Totals since the process started."}
	falls := Table{Summary: "Links that took another plane than the first that both sides list", Open: true, Left: 3,
		Heads: []string{"from", "to", "reason", "links"}}
	for _, b := range f.Stats.Fallbacks {
		falls.Rows = append(falls.Rows, []Cell{{Text: b.From}, {Text: b.To}, {Text: b.Reason},
			{Text: thousands(b.Links), Bad: true}})
	}
	s.Tables = []Table{falls, counts("Addresses that are not dialled", "reason", "addresses", f.Stats.AddressesRefused),
		counts("Lanes that died", "reason", "lanes", f.Stats.LaneDeaths),
		counts("Records that were dropped", "reason", "records", f.Stats.RecordsDropped)}
	s.Facts = []Fact{{Name: "calls of a sink over 10 ms", Value: thousands(f.Stats.SinkSlow)},
		{Name: "flushes forgotten", Value: thousands(f.Stats.ForgottenFlushes)}}
	return s
}

// counts is a table of the counters that are not zero.
func counts(what, key, unit string, m map[string]uint64) Table {
	t := Table{Summary: what, Open: true, Left: 1, Heads: []string{key, unit}}
	for _, k := range sortedKeys(m) {
		if m[k] > 0 {
			t.Rows = append(t.Rows, []Cell{{Text: k}, {Text: thousands(m[k]), Bad: true}})
		}
	}
	return t
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func rtt(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return span(d)
}

func onOff(b bool) string { return map[bool]string{true: "on", false: "off"}[b] }

func window(r Rates) string {
	over := span(time.Duration(r.WindowSeconds * float64(time.Second)))
	if r.SinceStart {
		return fmt.Sprintf("Means over %s, since the process started: nobody has looked before. The next look "+
			"measures from this one.", over)
	}
	return fmt.Sprintf("Means over the last %s, since somebody looked.", over)
}
