package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/memory"
	"github.com/laneway-ai/laneway/internal/frontend"
	"github.com/laneway-ai/laneway/internal/lab/refplane"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// arm is a reference arm's frontend with one worker process of two workers, over tcp, without etcd and NATS.
func arm(t *testing.T, take func(req discovery.Request, w *refplane.Writer) discovery.Reply) (*armPlane,
	*refplane.Worker) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := parse(t, "--response-plane=mux-tcp", "--bind-addr=127.0.0.1:0")
	if s.outPath != string(frontend.OutPull) {
		t.Errorf("out path %s", s.outPath)
	}
	a, ok := s.plane.Arm()
	if !ok {
		t.Fatal("mux-tcp is no arm")
	}
	config := func(name string) refplane.Config {
		id, err := transport.NewIdentity()
		must(err)
		trs, err := s.plane.Transports(id, nil)
		must(err)
		t.Cleanup(func() { trs[0].Close() })
		return s.plane.Reference(a, id, trs[0], name, nil)
	}
	w, err := refplane.NewWorker(config("process-1"))
	must(err)
	t.Cleanup(func() { w.Close() })
	must(w.Listen(t.Context()))
	hub, err := memory.New(memory.Config{})
	must(err)
	d, err := hub.Deliverer("arm")
	must(err)
	t.Cleanup(func() { d.Close() })
	ref, err := refplane.NewFrontend(config("frontend"))
	must(err)
	p := &armPlane{built: newBuilt(), ref: ref, log: slog.New(slog.DiscardHandler), retryLimit: 1,
		table: newArmTable(responseplane.RouterRoundRobin, ref, slog.New(slog.DiscardHandler)), clock: newArmClock()}
	p.deliverer = d
	ctx, stop := context.WithCancel(context.Background())
	p.undo = append(p.undo, ref.Close, p.clock.close, func() error { stop(); p.table.wg.Wait(); return nil })
	t.Cleanup(func() { p.Close() })
	for i := range 2 {
		rec := discovery.Worker{ID: fmt.Sprint("w-", i), Models: []string{"m"}, Node: w.Descriptor()}
		_, err := d.Serve(t.Context(), rec, func(_ context.Context, req discovery.Request) discovery.Reply {
			out, err := w.Attach(req.Terms)
			if err != nil {
				return discovery.Reply{Answer: discovery.BadRequest, Reason: err.Error()}
			}
			reply := take(req, out)
			if reply.Answer != discovery.Accepted {
				out.Abandon()
			}
			return reply
		})
		must(err)
		p.table.put(ctx, rec)
	}
	for end := time.Now().Add(patience); p.Ready() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(p.Ready(), p.State())
		}
	}
	return p, w
}

func TestArmServesEvenlyAndRetriesElsewhere(t *testing.T) {
	var w *refplane.Worker
	busy := map[string]bool{"first": true}
	p, w := arm(t, func(req discovery.Request, out *refplane.Writer) discovery.Reply {
		if busy[req.ID] {
			delete(busy, req.ID)
			return discovery.Reply{Answer: discovery.Busy, Reason: "on purpose"}
		}
		out.TryPut([]byte("a"))
		out.TryPut([]byte("b"))
		out.PutComplete([]byte("trailer"))
		w.Flush()
		return discovery.Reply{Answer: discovery.Accepted}
	})
	seen := map[string]int{}
	for i := range 10 {
		id := fmt.Sprint(i)
		if i == 0 {
			id = "first"
		}
		st, err := p.Open(t.Context(), frontend.Call{ID: id, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for {
			recs, err := st.NextBatch(t.Context())
			for _, r := range recs {
				got += string(r)
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				break
			}
		}
		if got != "ab" || string(st.Trailer()) != "trailer" || st.Plane() != "mux-tcp" ||
			st.NodeName() != "process-1" || st.Retries() != map[bool]int{true: 1}[i == 0] {
			t.Errorf("%q, trailer %q, %s, %s, %d retries", got, st.Trailer(), st.Plane(), st.NodeName(), st.Retries())
		}
		seen[st.Worker()]++
		st.Close()
	}
	if seen["w-0"] < 4 || seen["w-1"] < 4 || p.retries.snapshot()["busy"] != 1 {
		t.Errorf("placement %v, retries %v", seen, p.retries.snapshot())
	}
	if _, err := p.Open(t.Context(), frontend.Call{ID: "x", Model: "other"}); err == nil {
		t.Error("a model that nobody has was served")
	}
	if s, stats := p.State(), p.ref.Stats(); stats.Planes["mux-tcp"].RecordsIn != 20 ||
		stats.StreamsEnded["complete"] != 10 || stats.OpenStreams != 0 || len(s.Workers) != 2 ||
		s.Workers[0].Open != 0 {
		t.Errorf("%+v", s)
	}
	if err := w.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestArmKeepsTimeoutsAndLoses(t *testing.T) {
	p, w := arm(t, func(req discovery.Request, out *refplane.Writer) discovery.Reply {
		if req.ID != "silent" {
			out.TryPut([]byte("a"))
		}
		return discovery.Reply{Answer: discovery.Accepted}
	})
	ended := func(err error) string {
		e, _ := errors.AsType[*frontend.EndError](err)
		if e == nil {
			return fmt.Sprint(err)
		}
		return e.End
	}
	if _, err := p.Open(t.Context(), frontend.Call{ID: "silent", Model: "m",
		FirstRecordTimeout: time.Millisecond}); ended(err) != frontend.EndDeadline {
		t.Errorf("no first record: %v", err)
	}
	open := func(c frontend.Call) frontend.Stream {
		t.Helper()
		opened := make(chan frontend.Stream, 1)
		go func() { // joined by the receive below
			st, err := p.Open(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			opened <- st
		}()
		for {
			select {
			case st := <-opened:
				return st
			case <-time.After(time.Millisecond):
				w.Flush()
			}
		}
	}
	next := func(st frontend.Stream) error {
		for {
			if _, err := st.NextBatch(t.Context()); err != nil {
				return err
			}
		}
	}
	st := open(frontend.Call{ID: "then-silent", Model: "m", InactivityTimeout: time.Millisecond})
	if err := next(st); ended(err) != frontend.EndDeadline {
		t.Errorf("silent after a record: %v", err)
	}
	st.Close()
	st = open(frontend.Call{ID: "lost", Model: "m"})
	w.Close()
	err := next(st)
	if e, _ := errors.AsType[*frontend.EndError](err); e == nil || e.End != frontend.EndLost ||
		e.Worker != st.Worker() {
		t.Errorf("its process has gone: %v", err)
	}
	st.Close()
	for end := time.Now().Add(patience); p.Ready() == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("workers of a process that has gone are still reachable")
		}
	}
}
