package planepage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/laneway-ai/laneway/internal/program/holders"
	"github.com/laneway-ai/laneway/responseplane"
)

// ProcessLoad is one worker process in the picture of load.
type ProcessLoad struct {
	Process   string `json:"process"`
	Node      string `json:"node"`
	Workers   int    `json:"workers"`
	Reachable int    `json:"reachable"`
	Plane     string `json:"plane,omitempty"`
	Avoided   int    `json:"avoided"`
	Vanished  int    `json:"vanished"`
	Waiting   int    `json:"waiting"`   // open responses without a record
	Streaming int    `json:"streaming"` // open responses with records
	// LongestWait is the age of the oldest waiting response, in milliseconds.
	LongestWait float64 `json:"longest_wait_ms"`
	// First counts the responses that MeanFirst is the mean of, in milliseconds: those that are open or ended in the
	// last minute and have a record.
	First     int     `json:"first_responses"`
	MeanFirst float64 `json:"mean_first_response_ms,omitempty"`
	Holder    bool    `json:"holder"`
	Fallback  string  `json:"fallback,omitempty"`
	Err       string  `json:"error,omitempty"`
}

func (p *ProcessLoad) open() int { return p.Waiting + p.Streaming }

// Loads joins what is known of the workers and of their responses by process, ordered by name, and marks the holders by
// the rule of the reports: a mean time to first response of at least a quarter of the slowest's, above the median
// process's by 3 times or 3 inter-token latencies.
func Loads(workers []responseplane.WorkerStatus, load responseplane.Load) []ProcessLoad {
	by := map[string]*ProcessLoad{}
	at := func(node, name string) *ProcessLoad {
		p := by[node]
		if p == nil {
			p = &ProcessLoad{Node: node, Process: cmp.Or(name, node)}
			by[node] = p
		}
		return p
	}
	for i := range workers {
		w := &workers[i]
		p := at(w.Node, w.Name)
		p.Workers++
		p.Plane, p.Fallback = cmp.Or(p.Plane, w.Plane), cmp.Or(p.Fallback, w.Fallback)
		p.Err = cmp.Or(p.Err, w.Err)
		if w.Reachable {
			p.Reachable++
		}
		if w.Avoided {
			p.Avoided++
		}
		if w.Vanished {
			p.Vanished++
		}
	}
	var means []float64
	var answered []*ProcessLoad
	for i := range load.Processes {
		l := &load.Processes[i]
		node := l.Node.String()
		p := at(node, l.Name)
		p.Waiting, p.Streaming, p.First = l.Waiting, l.Streaming, l.First
		p.LongestWait, p.MeanFirst = ms(l.LongestWait), ms(l.MeanFirst)
		if l.First > 0 {
			means, answered = append(means, float64(l.MeanFirst)), append(answered, p)
		}
	}
	holder, _ := holders.Judge(means, float64(load.ITL))
	for i, p := range answered {
		p.Holder = holder[i]
	}
	out := make([]ProcessLoad, 0, len(by))
	for _, p := range by {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b ProcessLoad) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.Node, b.Node))
	})
	return out
}

// Holders counts them.
func Holders(loads []ProcessLoad) (n int) {
	for i := range loads {
		if loads[i].Holder {
			n++
		}
	}
	return n
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func fromMS(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }

// maxLines bounds the picture; the table below it has all.
const maxLines = 64

// picture draws the processes, and says what it leaves out.
func picture(loads []ProcessLoad) (lines []LoadLine, left string) {
	shown := loads
	if len(loads) > maxLines {
		shown = slices.Clone(loads)
		slices.SortStableFunc(shown, func(a, b ProcessLoad) int {
			if a.Holder != b.Holder {
				return map[bool]int{true: -1, false: 1}[a.Holder]
			}
			return cmp.Compare(b.open(), a.open())
		})
		shown = shown[:maxLines]
		left = fmt.Sprintf(" Holders and the busiest %d of %s are drawn.", maxLines,
			count(len(loads), "process", "processes"))
	}
	mostOpen, mostFirst := 0, 0.0
	for i := range shown {
		mostOpen, mostFirst = max(mostOpen, shown[i].open()), max(mostFirst, shown[i].MeanFirst)
	}
	for i := range shown {
		p := &shown[i]
		open := Bar{Name: "open", Text: thousands(p.open())}
		if p.Waiting > 0 {
			open.Text += fmt.Sprintf(" (%s wait)", thousands(p.Waiting))
		}
		if mostOpen > 0 {
			open.Parts = []float64{100 * float64(p.Streaming) / float64(mostOpen),
				100 * float64(p.Waiting) / float64(mostOpen)}
		}
		first := Bar{Name: "first record", Text: "none yet", Marked: p.Holder}
		if p.First > 0 {
			first.Text, first.Parts = span(fromMS(p.MeanFirst)), []float64{100 * p.MeanFirst / mostFirst}
		}
		l := LoadLine{Name: p.Process, Holder: p.Holder, Bars: []Bar{open, first}}
		if p.Waiting > 0 {
			l.Note = "longest wait " + span(fromMS(p.LongestWait))
		}
		if p.Reachable < p.Workers {
			l.Note += fmt.Sprintf(" %d of %d workers can be reached", p.Reachable, p.Workers)
		}
		lines = append(lines, l)
	}
	return lines, left
}
