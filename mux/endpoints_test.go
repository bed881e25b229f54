package mux

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

// dials is a transport that remembers what was dialled.
type dials struct {
	transport.Transport
	mu   sync.Mutex
	reqs []transport.DialRequest
}

// Dial implements transport.Transport.
func (d *dials) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	d.mu.Lock()
	d.reqs = append(d.reqs, req)
	d.mu.Unlock()
	return d.Transport.Dial(ctx, req)
}

// first is what each lane dialled first.
func (d *dials) first() map[int]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[int]string)
	for _, r := range d.reqs {
		if out[r.Lane] == "" {
			out[r.Lane] = r.Address
		}
	}
	return out
}

// Lane k of a frontend dials endpoint (offset + k) mod n; offset comes from its NodeID, so that frontends begin at different ones. A
// worker of an older version lists one endpoint: all lanes go there.
func TestLanesAreSpreadOverEndpoints(t *testing.T) {
	const lanes = 8
	for _, endpoints := range []int{1, 3, 4} {
		for _, id := range []transport.NodeID{{0, 0, 1}, {0, 1, 1}, {0x12, 0x34, 1}, {0xff, 0xff, 1}} {
			t.Run(fmt.Sprintf("%d endpoints, node %x", endpoints, id[:2]), func(t *testing.T) {
				n := memory.NewNetwork(memory.Config{})
				work, front := n.Transport(workerID), &dials{Transport: n.Transport(id)}
				ln, err := work.Listen(t.Context(), "worker:0", endpoints)
				if err != nil {
					t.Fatal(err)
				}
				send, err := NewSender(Config{ID: workerID})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { send.Close(); work.Close(); front.Close() })
				if err := send.Serve(ln); err != nil {
					t.Fatal(err)
				}
				recv, err := NewReceiver(Config{ID: id, Lanes: lanes}, front)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { recv.Close() })
				var list []string
				for _, a := range ln.Endpoints() {
					list = append(list, a.String())
				}
				if err := recv.AddPeer(Peer{ID: workerID, Planes: []PeerPlane{{Plane: front.Plane(), Endpoints: list}}}); err != nil {
					t.Fatal(err)
				}
				waitFor(t, "all lanes", func() bool { st, _ := recv.State(workerID); return st.Lanes == lanes })
				offset := int(id[0])<<8 | int(id[1])
				for k, address := range front.first() {
					if want := list[(offset+k)%endpoints]; address != want {
						t.Errorf("lane %d dialled %s, want %s", k, address, want)
					}
				}
			})
		}
	}
}
