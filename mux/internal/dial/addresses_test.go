package dial

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// serving starts a node on a network that answers at an address.
func serving(t *testing.T, net *memory.Network, id transport.NodeID, address string) *worker {
	t.Helper()
	w := newWorker(t, id)
	w.listen(net.Transport(id), address, 1)
	return w
}

// Of several addresses that are said of one node each is tried, however the others fail, and one over which a link is
// up stays in force as long as it is named.
func TestAddressesThatDisagree(t *testing.T) {
	const bad, good = "bad:1", "good:1"
	for name, fail := range map[string]func(t *testing.T, net *memory.Network){
		"nobody listens": func(*testing.T, *memory.Network) {},
		"silence":        func(_ *testing.T, net *memory.Network) { net.Silence(bad) },
		"another node answers": func(t *testing.T,
			net *memory.Network) {
			serving(t, net, transport.NodeID{0x77}, bad)
		},
	} {
		inFakeTime(t, name, func(t *testing.T) {
			net := memory.NewNetwork(memory.Config{Proves: true})
			fail(t, net)
			serving(t, net, workerID, good)
			recv := newFront(t, Config{Resume: time.Second}, net.Transport(frontID))

			add(t, recv, at(workerID, bad), at(workerID, good))
			awaitUp(t, recv, workerID, dialTimeout+time.Second)
			if d := recv.peer(workerID).description(); !sameAddresses(d, at(workerID, good)) {
				t.Errorf("in force: %+v", d)
			}

			// The bad one is told again, and first; the lane dies; the good one is what is dialled.
			add(t, recv, at(workerID, bad), at(workerID, good))
			net.Cut(nil)
			time.Sleep(100 * time.Millisecond)
			if !recv.Up(workerID) {
				t.Error("the lane is not back")
			}

			// The node is away for longer than a link lives; both are tried then, so the good one is found when it is
			// back.
			net.Silence(good)
			net.Cut(nil)
			time.Sleep(time.Minute)
			net.Allow(good)
			awaitUp(t, recv, workerID, 2*(dialTimeout+backoffMax))

			// Nobody names the good one any more: the link stays, a new one is not made there.
			add(t, recv, at(workerID, bad))
			time.Sleep(time.Minute)
			if !recv.Up(workerID) {
				t.Fatal("the link went with the record")
			}
			net.Cut(nil)
			time.Sleep(time.Minute)
			if recv.Up(workerID) {
				t.Fatal("an address that nobody names was dialled")
			}
			// It is named again, and the bad one is not: nothing of the bad one delays that.
			add(t, recv, at(workerID, good))
			awaitUp(t, recv, workerID, 100*time.Millisecond)
		})
	}
}

// deadAndLive is a network of hosts that do not answer and a node that does; its dials are noted.
type deadAndLive struct {
	transport.Transport
	mu sync.Mutex
	n  map[transport.NodeID]int
}

func (d *deadAndLive) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	d.mu.Lock()
	d.n[req.Peer]++
	d.mu.Unlock()
	return d.Transport.Dial(ctx, req)
}

func (d *deadAndLive) count(id transport.NodeID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n[id]
}

// Hosts that do not answer hold up no node that is new, has a new address, or was there until now.
func TestDeadHostsHoldUpNobody(t *testing.T) {
	const hosts = 1500
	dead := func(i int) transport.NodeID { return transport.NodeID{4, byte(i >> 8), byte(i)} }
	inFakeTime(t, "", func(t *testing.T) {
		net := memory.NewNetwork(memory.Config{Proves: true})
		net.Silence("dead:1")
		d := &deadAndLive{Transport: net.Transport(frontID), n: make(map[transport.NodeID]int)}
		recv := newFront(t, Config{Resume: time.Second}, d)
		for i := range hosts {
			add(t, recv, at(dead(i), "dead:1"))
		}
		time.Sleep(time.Minute) // each has had its first turn
		for i := range hosts {
			if d.count(dead(i)) == 0 {
				t.Fatalf("host %d was not dialled", i)
			}
		}

		serving(t, net, workerID, "good:1")
		begun := time.Now()
		add(t, recv, at(workerID, "good:1"))
		awaitUp(t, recv, workerID, time.Minute)
		took(t, "a new node", begun, 0, 50*time.Millisecond)

		serving(t, net, dead(0), "good:2")
		begun = time.Now()
		add(t, recv, at(dead(0), "good:2"))
		awaitUp(t, recv, dead(0), time.Minute)
		took(t, "a node with a new address", begun, 0, 50*time.Millisecond)

		// A link is lost, and the node is back after some refused dials.
		net.Refuse("good:1", nil)
		net.Cut(nil)
		waitFor(t, "the loss", func() bool { return !recv.UpSoon(workerID) })
		time.Sleep(5 * time.Second)
		net.Allow("good:1")
		begun = time.Now()
		awaitUp(t, recv, workerID, time.Minute)
		took(t, "a node that is back", begun, 0, backoffMax+50*time.Millisecond)

		// The dead ones are dialled on, in their own turns.
		before := d.count(dead(1))
		time.Sleep(2 * time.Minute)
		if d.count(dead(1)) == before {
			t.Error("a dead host is not dialled any more")
		}
	})
}

// A node that answers as another one is asked ever more rarely, until something else is known of it.
func TestDeniedIsRetriedRarely(t *testing.T) {
	for _, proves := range []bool{true, false} { // by the plane, or by what HELLO says
		inFakeTime(t, map[bool]string{true: "certificate", false: "HELLO"}[proves], func(t *testing.T) {
			net := memory.NewNetwork(memory.Config{Proves: proves})
			d := &deadAndLive{Transport: net.Transport(frontID), n: make(map[transport.NodeID]int)}
			recv := newFront(t, Config{}, d)
			other := transport.NodeID{0x77}
			serving(t, net, other, "taken:1")
			add(t, recv, at(workerID, "taken:1"))
			time.Sleep(10 * time.Minute)
			first := d.count(workerID)
			if first < 12 || first > 30 {
				t.Errorf("%d dials in ten minutes", first)
			}
			time.Sleep(10 * time.Minute)
			if n := d.count(workerID) - first; n < 10 || n > 21 {
				t.Errorf("%d dials in the ten minutes after", n)
			}
			if st, _ := recv.State(workerID); st.Err == nil || !transport.Denied(st.Err) {
				t.Errorf("state %+v", st)
			}
			serving(t, net, workerID, "own:1")
			begun := time.Now()
			add(t, recv, at(workerID, "own:1"))
			awaitUp(t, recv, workerID, time.Minute)
			took(t, "the right address", begun, 0, 50*time.Millisecond)
		})
	}
}
