package planepage

import (
	"cmp"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// Engine is one worker of a process.
type Engine struct {
	Worker           string
	Running, Waiting int
}

// Worker is what a worker process's page shows.
type Worker struct {
	Process  string
	NotReady string // why not; empty when it is
	At       time.Time
	Model    string
	Node     string
	Engines  []Engine
	Stats    responseplane.Stats
	Rates    Rates
	Sockets  []transport.SocketInfo
	Settings []planeflags.Setting
	Config   map[string]string
	Refresh  *Refresh
}

// Page lays it out.
func (v *Worker) Page() *Page {
	p := &Page{Title: "Laneway worker process " + v.Process, Sub: "The response plane at " + v.At.Format(stamp) +
		". Model: " + v.Model + ". Node " + v.Node + ".", Refresh: v.Refresh}
	if v.NotReady != "" {
		p.Alerts = append(p.Alerts, "Not ready: "+v.NotReady)
	}
	running, waiting := 0, 0
	for _, e := range v.Engines {
		running, waiting = running+e.Running, waiting+e.Waiting
	}
	p.Tiles = []Fact{
		{Name: "workers", Value: thousands(len(v.Engines))},
		{Name: "running, waiting", Value: thousands(running) + ", " + thousands(waiting)},
		{Name: "links, lanes", Value: thousands(v.Stats.Links) + ", " + thousands(len(v.Stats.Lanes))},
		{Name: "records a second", Value: rate(v.Rates.RecordsOut)},
		{Name: "bytes a second", Value: size(int64(v.Rates.BytesOut))},
		{Name: "ended a second", Value: rate(v.Rates.Ended)},
		{Name: "kept for sending again", Value: size(v.Stats.LogBytes)},
	}
	streams := Section{ID: "streams", Title: "Streams", Facts: []Fact{
		{Name: "open", Value: thousands(v.Stats.OpenStreams)},
		{Name: "opened", Value: thousands(v.Stats.StreamsOpened)},
		{Name: "lanes taken over", Value: thousands(takeovers(&v.Stats))},
		{Name: "windows accepted", Value: size(v.Stats.CommittedBytes)},
		{Name: "waits for a window", Value: thousands(v.Stats.WindowStalls)},
		{Name: "terms refused", Value: thousands(v.Stats.Refused)},
	}}
	for _, k := range sortedKeys(v.Stats.StreamsEnded) {
		streams.Facts = append(streams.Facts, Fact{Name: "ended as " + k, Value: thousands(v.Stats.StreamsEnded[k])})
	}
	sorted := slices.Clone(v.Engines)
	slices.SortStableFunc(sorted,
		func(a, b Engine) int { return cmp.Compare(b.Running+b.Waiting, a.Running+a.Waiting) })
	t := Table{Summary: "Workers, " + thousands(len(sorted)) + ", the busiest first", Open: len(sorted) <= 32, Left: 1,
		Heads: []string{"worker", "running", "waiting"}}
	for _, e := range sorted {
		t.Rows = append(t.Rows, []Cell{{Text: e.Worker}, {Text: thousands(e.Running)}, {Text: thousands(e.Waiting)}})
	}
	trouble := Section{ID: "trouble", Title: "Deaths and drops", Said: "Totals since the process started.",
		Tables: []Table{counts("Lanes that died", "reason", "lanes", v.Stats.LaneDeaths),
			counts("Records that were dropped", "reason", "records", v.Stats.RecordsDropped)}}
	p.Sections = []Section{streams, {ID: "workers", Title: "Workers", Tables: []Table{t}},
		ratesSection(v.Rates, v.Stats), lanesSection(v.Stats.Lanes, v.Sockets, false), socketsSection(v.Sockets),
		trouble, settingsSection(v.Settings, v.Config, nil)}
	return p
}
