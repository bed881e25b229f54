package planepage

import (
	"sync"
	"time"

	"github.com/laneway-ai/laneway/responseplane"
)

// Rates are what a second brings. Window says over how long they were measured.
type Rates struct {
	WindowSeconds float64 `json:"window_s"`
	// SinceStart: the window is the whole life of the process, because nobody has looked before.
	SinceStart bool    `json:"since_start"`
	RecordsIn  float64 `json:"records_in_per_s"`
	RecordsOut float64 `json:"records_out_per_s"`
	BytesIn    float64 `json:"bytes_in_per_s"`
	BytesOut   float64 `json:"bytes_out_per_s"`
	Opened     float64 `json:"streams_opened_per_s"`
	Ended      float64 `json:"streams_ended_per_s"`
	Reads      float64 `json:"reads_per_s"`
	Writes     float64 `json:"writes_per_s"`
	Wakes      float64 `json:"consumer_wakes_per_s"`
}

// Keeper turns counters into rates: it remembers what they were when somebody looked last. Its methods may be called
// concurrently.
type Keeper struct {
	start time.Time

	mu        sync.Mutex
	prev, now snapshot
}

// leastWindow is the shortest time that rates are measured over: looks that come faster share one.
const leastWindow = time.Second

type snapshot struct {
	at time.Time
	Rates
}

// NewKeeper makes a Keeper for counters that began at start.
func NewKeeper(start time.Time) *Keeper {
	first := snapshot{at: start}
	return &Keeper{start: start, prev: first, now: first}
}

// Rates takes the counters of a moment and returns the rates since an earlier look, at least a second ago.
func (k *Keeper) Rates(at time.Time, s responseplane.Stats) Rates {
	v := snapshot{at: at, Rates: Rates{RecordsIn: float64(s.RecordsIn), RecordsOut: float64(s.RecordsOut),
		BytesIn: float64(s.BytesIn), BytesOut: float64(s.BytesOut),
		Opened: float64(s.StreamsOpened), Reads: float64(s.Reads), Wakes: float64(s.Wakes)}}
	for _, n := range s.StreamsEnded {
		v.Ended += float64(n)
	}
	for _, n := range s.Writes {
		v.Writes += float64(n)
	}
	k.mu.Lock()
	if at.Sub(k.now.at) >= leastWindow {
		k.prev, k.now = k.now, v
	}
	from := k.prev
	k.mu.Unlock()
	r := Rates{WindowSeconds: at.Sub(from.at).Seconds(), SinceStart: from.at.Equal(k.start)}
	if r.WindowSeconds <= 0 {
		return r
	}
	per := func(a, b float64) float64 { return max(a-b, 0) / r.WindowSeconds }
	r.RecordsIn, r.RecordsOut = per(v.RecordsIn, from.RecordsIn), per(v.RecordsOut, from.RecordsOut)
	r.BytesIn, r.BytesOut = per(v.BytesIn, from.BytesIn), per(v.BytesOut, from.BytesOut)
	r.Opened, r.Ended = per(v.Opened, from.Opened), per(v.Ended, from.Ended)
	r.Reads, r.Writes, r.Wakes = per(v.Reads, from.Reads), per(v.Writes, from.Writes), per(v.Wakes, from.Wakes)
	return r
}
