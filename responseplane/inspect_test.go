package responseplane_test

import (
	"errors"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/responseplane"
)

// TestInspect follows a request over two attempts to its end.
func TestInspect(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{workers: 2, front: roundRobin})
		r.procs[0].answer(discovery.Busy)
		r.procs[1].accept()
		if _, ok := r.front.Inspect("a"); ok {
			t.Fatal("a request that never was is known")
		}
		var responses []*responseplane.Response
		opened := make(chan error, 1)
		go func() { // joined by opened
			for _, id := range []string{"a", "b"} { // one of two begins at the busy worker
				res, err := r.front.Open(t.Context(), responseplane.Request{ID: id, Model: model})
				if err != nil {
					opened <- err
					return
				}
				responses = append(responses, res)
			}
			opened <- nil
		}()
		w := r.procs[1].writer(t, "a")
		eventually(t, "a request that waits for its first record", func() bool {
			i, ok := r.front.Inspect("a")
			return ok && i.State == responseplane.RequestWaiting && i.Stream != nil && i.Stream.Records == 0 &&
				i.Ended.IsZero()
		})
		if l := r.front.Load(5); l.Waiting != 1 || l.Streaming != 0 || len(l.Silent) != 1 || l.Silent[0].ID != "a" ||
			l.Silent[0].Worker != "w1" || len(l.Processes) != 1 || l.Processes[0].LongestWait <= 0 {
			t.Errorf("while it waits: %+v", l)
		}
		send := func(w *responseplane.Writer) {
			t.Helper()
			if err := w.Send(t.Context(), []byte("token")); err != nil {
				t.Fatal(err)
			}
		}
		send(w)
		v := r.procs[1].writer(t, "b")
		send(v)
		if err := <-opened; err != nil {
			t.Fatal(err)
		}
		retried := 0
		for _, id := range []string{"a", "b"} {
			i, ok := r.front.Inspect(id)
			if !ok || i.ID != id || i.Model != model || i.State != responseplane.RequestStreaming || i.Err != nil ||
				i.Stream.State != "live" || i.Stream.Records != 1 {
				t.Fatalf("%s: %+v", id, i)
			}
			last := i.Attempts[len(i.Attempts)-1]
			if last.Worker != "w1" || last.Name != "process-w1" || last.Err != nil ||
				last.Node != r.procs[1].nodeID() || i.Stream.Node != last.Node {
				t.Errorf("%s: %+v", id, i.Attempts)
			}
			if len(i.Attempts) == 2 {
				retried++
				if first := i.Attempts[0]; first.Worker != "w0" || !errors.Is(first.Err, responseplane.ErrBusy) ||
					first.Began.After(last.Began) {
					t.Errorf("%s: %+v", id, first)
				}
			}
		}
		if retried != 1 {
			t.Errorf("%d requests were made again, expected 1", retried)
		}
		send(w)
		if err := w.Complete([]byte("trailer")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := responses[0].Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = next(t, responses[0])
		_ = responses[0].Close()
		_ = responses[0].Close()
		i, ok := r.front.Inspect("a")
		if !ok || i.State != responseplane.RequestEnded || i.Ended.IsZero() || i.Stream.End == nil ||
			responseplane.EndKind(i.Stream.End.Type) != responseplane.EndComplete ||
			i.Stream.End.Trailer != nil || i.Stream.Records != 2 {
			t.Errorf("after its end: %+v", i)
		}
		if heads := i.Stream.Heads(); len(heads) != 4 || heads[0].Kind != "OPEN" || heads[3].Kind != "END" {
			t.Errorf("headers %+v", heads)
		}
		if string(responses[0].Trailer()) != "trailer" {
			t.Error("inspection took the trailer")
		}
		if live := responses[1].Inspect(); live.State != "live" || live.Records != 1 {
			t.Errorf("%+v", live)
		}
		_ = responses[1].Close() // kills it
		if i, _ := r.front.Inspect("b"); i.Stream.End == nil ||
			responseplane.EndKind(i.Stream.End.Type) != responseplane.EndKilled ||
			i.State != responseplane.RequestEnded {
			t.Errorf("killed: %+v", i)
		}
		l := r.front.Load(5)
		if l.Waiting+l.Streaming+l.Routing != 0 || l.Kept != 2 || len(l.Processes) != 1 || l.Processes[0].First != 2 ||
			l.Processes[0].MeanFirst <= 0 || l.ITL <= 0 || l.ITL > time.Minute {
			t.Errorf("in the end: %+v", l)
		}
	})
}

// TestInspectFailed looks at a request that no worker took.
func TestInspectFailed(t *testing.T) {
	onPlanes(t, func(t *testing.T, net network) {
		r := newRig(t, net, rigConfig{front: func(c *responseplane.FrontendConfig) { c.RetryLimit = 1 }})
		r.procs[0].answer(discovery.Busy)
		_, err := r.front.Open(t.Context(), responseplane.Request{ID: "x", Model: model})
		if !errors.Is(err, responseplane.ErrBusy) {
			t.Fatal(err)
		}
		i, ok := r.front.Inspect("x")
		if !ok || i.State != responseplane.RequestEnded || !errors.Is(i.Err, responseplane.ErrBusy) ||
			len(i.Attempts) != 2 || i.Stream == nil || i.Stream.End == nil {
			t.Errorf("%+v", i)
		}
		if _, err := r.front.Open(t.Context(), responseplane.Request{ID: "y", Model: "unknown"}); err == nil {
			t.Fatal("an unknown model was served")
		}
		if i, ok := r.front.Inspect("y"); !ok || i.Stream != nil || len(i.Attempts) != 0 || i.Err == nil {
			t.Errorf("%+v", i)
		}
	})
}
