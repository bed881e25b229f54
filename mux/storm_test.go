package mux

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// stormNode makes a node whose sockets are small: hundreds of them share this process.
func stormNode(t *testing.T, plane string) (transport.Transport, transport.NodeID) {
	t.Helper()
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	var tr transport.Transport
	if plane == transport.PlaneQUIC {
		tr, err = quic.New(quic.Config{Identity: id, RecvBuffer: 64 << 10, SendBuffer: 64 << 10})
	} else {
		tr, err = tcp.New(tcp.Config{Identity: id, TLS: plane == transport.PlaneTLS})
	}
	if err != nil {
		t.Fatal(err)
	}
	return tr, id.ID
}

// dialErrors is a transport that keeps the errors of its dials.
type dialErrors struct {
	transport.Transport
	mu   sync.Mutex
	errs []error
}

func (d *dialErrors) Dial(ctx context.Context, req transport.DialRequest) (transport.Conn, error) {
	c, err := d.Transport.Dial(ctx, req)
	if err != nil {
		d.mu.Lock()
		d.errs = append(d.errs, err)
		d.mu.Unlock()
	}
	return c, err
}

// TestDialStorm: a frontend learns of many nodes in one moment. None refuses, and every one serves.
// LANEWAY_STORM_NODES=512 is as many as there are workers in 8 processes of 64; the default keeps the test short.
func TestDialStorm(t *testing.T) {
	nodes := 128
	if underRace {
		nodes = 32
	}
	if s := os.Getenv("LANEWAY_STORM_NODES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("LANEWAY_STORM_NODES=%s is no number of nodes", s)
		}
		nodes = n
	}
	for _, plane := range processPlanes {
		t.Run("plane="+plane, func(t *testing.T) {
			if limit, ok := transport.FileLimit(); ok && limit < uint64(4*nodes) {
				t.Skipf("%d files may be open here, %d nodes need %d", limit, nodes, 4*nodes)
			}
			tr, id := stormNode(t, plane)
			front := &dialErrors{Transport: tr}
			recv, err := NewFrontendNode(Config{ID: id}, front)
			if err != nil {
				t.Fatal(err)
			}
			var peers []Peer
			var senders []*WorkerNode
			var work []transport.Transport
			defer func() {
				closeInTime(t, "FrontendNode", recv)
				var wg sync.WaitGroup
				for i, s := range senders {
					wg.Go(func() {
						_ = s.Close()
						_ = work[i].Close()
					})
				}
				wg.Wait()
				_ = front.Close()
			}()
			for range nodes {
				tr, id := stormNode(t, plane)
				ln, err := tr.Listen(t.Context(), "127.0.0.1:0", 1)
				if err != nil {
					t.Fatal(err)
				}
				s, err := NewWorkerNode(Config{ID: id})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Serve(ln); err != nil {
					t.Fatal(err)
				}
				senders, work = append(senders, s), append(work, tr)
				endpoints := []string{ln.Endpoints()[0].String()}
				peers = append(peers, Peer{ID: id, Planes: []PeerPlane{{Plane: plane, Endpoints: endpoints}}})
			}
			begun := time.Now()
			for _, p := range peers {
				if err := recv.AddPeer(p); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for _, p := range peers {
				if err := recv.Await(ctx, p.ID); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d nodes were connected after %v", nodes, time.Since(begun))
			front.mu.Lock()
			for _, err := range front.errs {
				if !errors.Is(err, context.DeadlineExceeded) { // that is a machine with too much to do, not a refusal
					t.Error(err)
				}
			}
			t.Logf("%d dials were made again because their time was up", len(front.errs))
			front.mu.Unlock()
			for i := range work {
				in, err := recv.Mint(ctx, peers[i].ID, MintOptions{})
				if err != nil {
					t.Fatal(err)
				}
				out, err := senders[i].Attach(in.Terms())
				if err != nil {
					t.Fatal(err)
				}
				if err := out.Complete(nil); err != nil {
					t.Fatal(err)
				}
				if _, err := in.Next(ctx); err != io.EOF {
					t.Fatal(err)
				}
				_ = in.Close()
			}
		})
	}
}
