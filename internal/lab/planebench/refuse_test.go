package planebench

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/childproc"
	"github.com/laneway-ai/laneway/transport"
)

// TestRefusalsAreErrors: a worker that drains refuses, over the request path, and every refused response counts once.
func TestRefusalsAreErrors(t *testing.T) {
	for _, delivery := range Deliveries() {
		t.Run(delivery, func(t *testing.T) {
			l := Load{Concurrency: 20, Engines: 2, OSL: 8, TokenBytes: 64, Interval: 5 * time.Millisecond}
			newChild := func(role string) *child {
				c := &child{out: childproc.NewWriter[message](io.Discard), log: slog.New(slog.DiscardHandler)}
				c.cfg = childConfig{Role: role, Plane: transport.PlaneTCP, Delivery: delivery, Settings: settings(),
					Load: l, Frontends: 1, Processes: 1}
				c.cfg.Settings.Planes = []string{transport.PlaneTCP}
				var err error
				if c.id, err = transport.NewIdentity(); err != nil {
					t.Fatal(err)
				}
				if c.transports, err = c.cfg.Settings.Transports(c.id, nil); err != nil {
					t.Fatal(err)
				}
				return c
			}
			w := newChild(roleWorker)
			worker := &workerRole{child: w}
			ready, err := worker.start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer w.closeAll(worker)
			c := newChild(roleFrontend)
			c.cfg.Workers = []workerPlace{*ready.Worker}
			front := &frontendRole{child: c}
			if _, err := front.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer c.closeAll(front)
			front.load.begin()
			front.load.start(front.ctx)
			for worker.worker.Stats().RecordsOut < 100 {
				time.Sleep(time.Millisecond)
			}
			drained := make(chan error, 1)
			go func() { drained <- worker.worker.(ownWorker).Drain(context.Background()) }()
			<-front.load.done // all 20 slots have met a refusal, of the worker or at Mint
			if err := <-drained; err != nil {
				t.Error(err)
			}
			totals := front.load.stop()
			if totals.Errors != 20 || totals.Wrong != 0 || totals.Completed == 0 {
				t.Errorf("%d errors (expected 20), %d wrong, %d completed: %s", totals.Errors, totals.Wrong,
					totals.Completed, strings.Join(totals.Notes, "; "))
			}
			if st := front.stats(); st.RecordsIn != totals.Taken || worker.stats().RecordsOut != totals.Taken {
				t.Errorf("%d taken, the plane counted %d in and %d out", totals.Taken, st.RecordsIn,
					worker.stats().RecordsOut)
			}
		})
	}
}
