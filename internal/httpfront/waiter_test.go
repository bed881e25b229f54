package httpfront

import (
	"context"
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
		stops = append(stops, context.AfterFunc(w, func() { called <- i }))
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
