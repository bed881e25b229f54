package frontend

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

// TestWaitingCostsNoGoroutine: what waits for a stream's context does not keep a goroutine for it, and is still called.
func TestWaitingCostsNoGoroutine(t *testing.T) {
	k := newKeeper(time.Hour)
	defer k.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := runtime.NumGoroutine()
	called := make(chan int, 100)
	var stops []func() bool
	for i := range 100 {
		w := k.watch(ctx, time.Now())
		defer w.leave()
		stops = append(stops, context.AfterFunc(w.ctx(), func() { called <- i }))
	}
	if n := runtime.NumGoroutine(); n > before+10 {
		t.Errorf("%d goroutines wait for 100 streams", n-before)
	}
	if !stops[0]() || stops[0]() {
		t.Error("stop did not say once that it stopped the call")
	}
	cancel()
	for range 99 {
		select {
		case i := <-called:
			if i == 0 {
				t.Error("what was stopped was called")
			}
		case <-time.After(time.Minute):
			t.Fatal("the end of the request was not told")
		}
	}
}

// TestDerivedContextsOutliveAWait: what was derived from a wait's context may find out that it has ended when the
// stream waits anew already. It must find why: a context without an error ends the process.
func TestDerivedContextsOutliveAWait(t *testing.T) {
	k := newKeeper(time.Hour)
	defer k.close()
	request, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := k.watch(request, time.Now())
	defer w.leave()
	for range 2000 {
		derived, stop := context.WithCancel(w.ctx())
		old := w.ctx()
		w.fire()
		if !w.again() {
			t.Fatal("a keep-alive is not taken for one")
		}
		<-derived.Done()
		if err := derived.Err(); !errors.Is(err, errSilent) || old.Err() != errSilent || w.ctx().Err() != nil {
			t.Fatalf("derived: %v, the old wait: %v, the new one: %v", err, old.Err(), w.ctx().Err())
		}
		stop()
	}
	if w.again() {
		t.Error("a wait that goes on is begun again")
	}
	now := w.ctx()
	cancel()
	<-now.Done()
	if now.Err() != context.Canceled || w.again() {
		t.Errorf("the request has ended: %v", now.Err())
	}
	w.fire()
	if now.Err() != context.Canceled {
		t.Errorf("the reason has changed to %v", now.Err())
	}
}
