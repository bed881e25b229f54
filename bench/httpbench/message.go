package httpbench

import (
	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
)

// What parent and child say to each other.
const (
	opStart = "start" // parent: the configuration. Answered by opReady
	opReady = "ready"
	// parent, to the client: begin the load; to the frontend: say opFull when all responses are open
	opGo     = "go"
	opFull   = "full"  //
	opBegin  = "begin" // parent: the window begins. Answered by opBegun
	opBegun  = "begun"
	opEnd    = "end" // parent: the window ends. Answered by opWindow
	opWindow = "window"
	// parent, to the client: start no more requests. It answers opStopped when the last one has ended
	opStop    = "stop"
	opFinish  = "finish" // parent, to who hosts engines: end each response at its next pass
	opTotals  = "totals" // parent, to all but the client: answered by opStopped
	opStopped = "stopped"
	opFailed  = "failed" // child: it cannot go on; Error, which is only there then, says why
)

type message struct {
	Op      string       `json:"op"`
	Config  *childConfig `json:"config,omitempty"`
	Place   *place       `json:"place,omitempty"`    // of a worker, with opReady
	URL     string       `json:"url,omitempty"`      // of the frontend, with opReady
	OutPath string       `json:"out_path,omitempty"` // in force, with opReady
	Usage   *usage       `json:"usage,omitempty"`    // with opWindow
	Totals  *totals      `json:"totals,omitempty"`   // with opStopped
	Seen    *seen        `json:"seen,omitempty"`     // by the client, with opStopped
	Error   string       `json:"error,omitempty"`
}

// Operation implements childproc.Message.
func (m message) Operation() string { return m.Op }

// Failure implements childproc.Message.
func (m message) Failure() string { return m.Error }

type (
	proc  = childproc.Proc[message]
	group = childproc.Group[message]
)

// childConfig is what a child must know.
type childConfig struct {
	Role      string              `json:"role"`
	Index     int                 `json:"index"` // among those of its role
	Arm       string              `json:"arm"`
	Load      Load                `json:"load"`
	Processes int                 `json:"processes"` // that host engines
	OutPath   string              `json:"out_path"`
	Settings  planeflags.Settings `json:"settings"`
	Workers   []place             `json:"workers,omitempty"` // for the frontend
	URL       string              `json:"url,omitempty"`     // for the client
	Profile   string              `json:"profile,omitempty"` // file for the window's CPU profile
}

// engines is how many this process hosts.
func (c childConfig) engines() int {
	return (c.Load.Engines - c.Index + c.Processes - 1) / c.Processes
}

// place is where a worker process is found.
type place struct {
	// Address is a peer's own; of Laneway, of the request path.
	Address    string                    `json:"address"`
	Descriptor *responseplane.Descriptor `json:"descriptor,omitempty"` // of Laneway
}

// totals are a process's over its whole life.
type totals struct {
	Tokens  uint64            `json:"tokens"` // worker: made; frontend: taken; in-process: taken
	Made    uint64            `json:"made"`   // by engines of this process
	Open    int               `json:"open"`   // frontend: responses that it still serves
	Planes  map[string]uint64 `json:"planes"` // frontend: records by plane, of Laneway
	RSSPeak int64             `json:"rss_peak"`
}

// seen is what the client saw.
type seen struct {
	Completed int       `json:"completed"` // of the whole run
	Errors    int       `json:"errors"`
	Wrong     int       `json:"wrong"`
	Unaudited int       `json:"unaudited"` // responses whose text nobody verified
	Tokens    uint64    `json:"tokens"`
	Notes     []string  `json:"notes,omitempty"`
	Loops     int       `json:"loops"`              // of its own, each of which can keep one core busy
	LateP99   *float64  `json:"late_p99,omitempty"` // how late they were in the window, ms
	InWindow  int       `json:"in_window"`          // completed
	TTFT      []float64 `json:"ttft"`               // ns
	ITL       []float64 `json:"itl"`
}
