package mux

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport/memory"
)

// A peer that is removed while its first lane comes up does not hold anybody up.
func TestPeerThatIsRemovedAtOnce(t *testing.T) {
	n := memory.NewNetwork(memory.Config{})
	work, front := n.Transport(workerID), n.Transport(frontID)
	defer work.Close()
	defer front.Close()
	ln, err := work.Listen(t.Context(), "worker:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	send, err := NewWorkerNode(Config{ID: workerID})
	if err != nil {
		t.Fatal(err)
	}
	if err := send.Serve(ln); err != nil {
		t.Fatal(err)
	}
	defer send.Close()
	recv, err := NewFrontendNode(Config{ID: frontID}, front)
	if err != nil {
		t.Fatal(err)
	}
	defer recv.Close()
	peer := Peer{ID: workerID, Planes: []PeerPlane{{Plane: "memory", Endpoints: []string{ln.Endpoints()[0].String()}}}}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		if err := recv.AddPeer(peer); err != nil {
			t.Fatal(err)
		}
		for range r.IntN(2000) {
			_ = recv.Up(workerID)
		}
		begun := time.Now()
		recv.RemovePeer(workerID)
		if d := time.Since(begun); d > 5*time.Second {
			t.Fatalf("removal %d took %v", i, d)
		}
	}
}

// A worker that drains says so on every lane, also on those that come meanwhile, and nothing goes out before HELLO.
func TestDrainMeetsHandshakes(t *testing.T) {
	for range 20 {
		f := newRawFront(t, Config{}, memory.Config{TryWrite: true})
		f.lanes = MaxLanes
		first := f.lane(t)
		var lanes []*rawLane
		for range MaxLanes - 1 {
			lanes = append(lanes, f.dial(t))
		}
		out := f.attach(t, f.terms(first, 1)) // so that Drain waits
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = f.send.Drain(ctx) })
		for i, l := range lanes {
			h := f.hello()
			h.Lane = uint16(i + 1)
			l.send(t, wire.AppendHello(nil, &h))
		}
		for _, l := range lanes {
			hello, err := pipe.ReadHello(l.conn)
			if err != nil {
				t.Fatalf("the first record of a lane: %v", err)
			}
			l.peer = *hello
			l.pump()
			if _, ok := l.await(t, "GOAWAY", ofKind(wire.GoAway)); !ok {
				t.Fatal("the lane died")
			}
		}
		_ = out.Complete(nil)
		cancel()
		wg.Wait()
		closeInTime(t, "WorkerNode", f.send)
		for _, l := range lanes {
			_ = l.conn.Close()
			<-l.done
		}
	}
}
