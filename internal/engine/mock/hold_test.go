package mock

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/internal/serving/mockproto"
)

// TestHold: the share of the requests that is held starts so much later, the rest does not, and each is answered whole.
func TestHold(t *testing.T) {
	const n, delay = 200, 5 * time.Second
	run(t, Config{Seed: 3, HoldShare: 0.25, HoldDelay: delay, MaxNumSeqs: n}, func(t *testing.T, e *Engine, c *counts) {
		var ws []*script
		for i := range n {
			ws = append(ws, submit(t, e, req(fmt.Sprint("r", i), 4)))
		}
		time.Sleep(ttft)
		synctest.Wait()
		held := c.now().held
		if running, waiting := e.Load(); e.Held() != held || waiting != held || running != n-held {
			t.Errorf("%d held, %d waiting, %d running; %d were held", e.Held(), waiting, running, held)
		}
		if held < n/8 || held > n/2 {
			t.Errorf("%d of %d requests are held, expected about a quarter", held, n)
		}
		time.Sleep(delay + time.Minute)
		synctest.Wait()
		late := 0
		for _, w := range ws {
			w.wantEnd(t, mockproto.FinishLength, 4)
			switch first := w.now().at[0]; first {
			case ttft:
			case ttft + delay:
				late++
			default:
				t.Errorf("the first token came after %v", first)
			}
		}
		if late != held || e.Held() != 0 {
			t.Errorf("%d responses were late, %d were held; %d are held now", late, held, e.Held())
		}
	})
}

// TestHeldRequests: a held request takes a place, is dropped at the next pass after it was cancelled, and is ended by
// Close.
func TestHeldRequests(t *testing.T) {
	run(t, Config{HoldShare: 1, HoldDelay: time.Hour, MaxNumSeqs: 1, MaxWaitingQueueLength: 2},
		func(t *testing.T, e *Engine, c *counts) {
			a, b := submit(t, e, req("a", 1)), submit(t, e, req("b", 1))
			last := submit(t, e, req("c", 1))
			if err := e.Submit(req("d", 1), newScript()); err == nil {
				t.Error("a fourth request was taken, there are three places")
			}
			synctest.Wait()
			a.kill()
			time.Sleep(itl)
			synctest.Wait()
			if got := c.now(); got.cancelled != 1 || e.Held() != 2 {
				t.Errorf("%d cancelled, %d held", got.cancelled, e.Held())
			}
			b.stop.Store(true)
			time.Sleep(itl)
			synctest.Wait()
			b.wantEnd(t, mockproto.FinishStop, 0)
			e.Close()
			if last.now().failed == nil {
				t.Error("Close did not end the held request")
			}
		})
}

// TestHostFailures: a failure of a lane or of the process is done by the function that is handed in, and the request
// goes on.
func TestHostFailures(t *testing.T) {
	lanes, kills := 0, 0
	cfg := Config{FailureRate: 1, FailureTypes: []FailureType{FailLane}, CloseLane: func() { lanes++ },
		Kill: func() { kills++ }}
	for _, kind := range []FailureType{FailLane, FailKill} {
		cfg.FailureTypes = []FailureType{kind}
		run(t, cfg, func(t *testing.T, e *Engine, c *counts) {
			w := submit(t, e, req("r", 10))
			time.Sleep(time.Minute)
			synctest.Wait()
			w.wantEnd(t, mockproto.FinishLength, 10)
			if c.now().injected[kind] != 1 {
				t.Errorf("counted %v", c.now().injected)
			}
		})
	}
	if lanes != 1 || kills != 1 {
		t.Errorf("%d lanes were closed, %d processes killed, want one each", lanes, kills)
	}
}

func TestHoldConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{HoldShare: 1.5, HoldDelay: 1}, "hold-share is 1.5"},
		{Config{HoldShare: 0.5}, "set both"},
		{Config{HoldDelay: time.Second}, "set both"},
		{Config{HoldShare: 0.5, HoldDelay: 2 * time.Hour}, "hold-delay is 2h0m0s"},
		{Config{FailureRate: 1, FailureTypes: []FailureType{FailKill}}, `"kill" has no function`},
		{Config{FailureRate: 1, FailureTypes: []FailureType{FailLane}}, `"lane" has no function`},
	} {
		c.cfg.Flush = func() {}
		if err := c.cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
