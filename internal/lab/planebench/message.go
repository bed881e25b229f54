package planebench

import (
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
)

// What parent and child say to each other, one JSON object a line.
const (
	opStart = "start" // parent: the configuration. The child answers opReady
	opReady = "ready"
	opGo    = "go" // parent, to frontends: begin the load
	// opCount: parent, to frontends in the window: tell opEnough when your share of the requests has completed.
	opCount = "count"
	// opSteady: every slot of a frontend has ended its first response.
	opSteady = "steady"
	opEnough = "enough"
	opBegin  = "begin" // parent: the window begins. Answered by opBegun
	opBegun  = "begun"
	opEnd    = "end" // parent: the window ends. Answered by opWindow
	opWindow = "window"
	opStop   = "stop" // parent: finish. A frontend answers when its responses have ended, with its totals: opStopped
	// opTotals: parent, to workers, when all frontends have stopped; answered by opStopped.
	opTotals  = "totals"
	opStopped = "stopped"
	opFailed  = "failed" // child: it cannot go on; Error, which is only there then, says why
)

type message struct {
	Op       string          `json:"op"`
	Config   *childConfig    `json:"config,omitempty"`
	Worker   *workerPlace    `json:"worker,omitempty"`
	Broker   string          `json:"broker,omitempty"` // its address
	Usage    *Usage          `json:"usage,omitempty"`
	Consumer *Consumer       `json:"consumer,omitempty"`
	Sockets  []report.Socket `json:"sockets,omitempty"` // of the plane, with opWindow
	Totals   *Totals         `json:"totals,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// childConfig is what a child must know.
type childConfig struct {
	Role      string              `json:"role"`
	Index     int                 `json:"index"` // among those of its role
	Plane     string              `json:"plane"`
	Delivery  string              `json:"delivery"`
	Settings  planeflags.Settings `json:"settings"`
	Load      Load                `json:"load"`
	Frontends int                 `json:"frontends"`
	Processes int                 `json:"processes"` // worker processes
	Workers   []workerPlace       `json:"workers,omitempty"`
	Requests  int                 `json:"requests,omitempty"` // this frontend's share
	Warmup    int                 `json:"warmup,omitempty"`   // this frontend's share of the warm-up requests
	// Baseline is the bare plane to run instead of ours, "" for ours. BaselineInterval is for the batched one.
	Baseline         string        `json:"baseline,omitempty"`
	BaselineInterval time.Duration `json:"baseline_interval,omitempty"`
	Peer             string        `json:"peer,omitempty"`   // that runs instead of ours
	Broker           string        `json:"broker,omitempty"` // the peer's, once it runs
	Profile          string        `json:"profile,omitempty"`
}

// engines is how many a worker process hosts.
func (c childConfig) engines() int {
	return (c.Load.Engines - c.Index + c.Processes - 1) / c.Processes
}

// phase spreads the passes of all engines over the interval, in each process and between them.
func (c childConfig) phase(engine int) time.Duration {
	return time.Duration(engine*c.Processes+c.Index) * c.Load.Interval / time.Duration(c.Load.Engines)
}

// workerPlace is where a worker process is found.
type workerPlace struct {
	Descriptor responseplane.Descriptor `json:"descriptor"`
	Requests   string                   `json:"requests"`
}

// Consumer is what one frontend saw in the window.
type Consumer struct {
	TTFT       []float64 `json:"ttft"` // ns
	ITL        []float64 `json:"itl"`
	Censored   int       `json:"censored"`
	Delay      Counts    `json:"delay"`
	FirstDelay Counts    `json:"first_delay"`
}

// Totals are a child's over its whole life.
type Totals struct {
	Completed uint64         `json:"completed"`
	Taken     uint64         `json:"taken"`
	Errors    int            `json:"errors"`
	Wrong     int            `json:"wrong"`
	Notes     []string       `json:"notes,omitempty"`
	Records   uint64         `json:"records"` // that the plane counted
	Planes    map[string]int `json:"planes"`  // lanes by plane
	RSSPeak   int64          `json:"rss_peak"`
	Left      int64          `json:"left"` // streams that the plane still holds
}
