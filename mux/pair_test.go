package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
	"github.com/laneway-ai/laneway/transport/quic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is one frontend and one worker over a plane.
type pair struct {
	recv *FrontendNode
	send *WorkerNode
	net  *memory.Network // nil on planes with sockets
	id   transport.NodeID

	endpoints []string
}

type pairConfig struct {
	recv, send Config
	mem        memory.Config
	quic       quic.Config // of newPlanePair; its identity is made there
}

// newPair connects a FrontendNode and a WorkerNode over the memory plane and waits until a lane is up.
func newPair(t testing.TB, cfg pairConfig) *pair {
	t.Helper()
	ids := [2]transport.NodeID{{0xf}, {0x3}}
	network := memory.NewNetwork(cfg.mem)
	return connectPair(t, cfg, network, network.Transport(ids[0]), network.Transport(ids[1]), "worker:0", ids)
}

func connectPair(t testing.TB, cfg pairConfig, network *memory.Network, front, work transport.Transport, bind string,
	ids [2]transport.NodeID) *pair {
	t.Helper()
	cfg.recv.ID, cfg.send.ID = ids[0], ids[1]
	ln, err := work.Listen(t.Context(), bind, 4)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{net: network, id: ids[1]}
	if p.send, err = NewWorkerNode(cfg.send); err != nil {
		t.Fatal(err)
	}
	if err := p.send.Serve(ln); err != nil {
		t.Fatal(err)
	}
	if p.recv, err = NewFrontendNode(cfg.recv, front); err != nil {
		t.Fatal(err)
	}
	for _, a := range ln.Endpoints() {
		p.endpoints = append(p.endpoints, a.String())
	}
	if err := p.recv.AddPeer(Peer{ID: p.id,
		Planes: []PeerPlane{{Plane: front.Plane(), Endpoints: p.endpoints}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.close(t)
		_ = front.Close()
		_ = work.Close()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.recv.Await(ctx, p.id); err != nil {
		t.Fatal(err)
	}
	want := max(cfg.recv.Lanes, 1)
	waitFor(t, "all lanes", func() bool { return p.state().Lanes == want })
	return p
}

func (p *pair) state() PeerState {
	st, _ := p.recv.State(p.id)
	return st
}

// close tears both sides down and checks that nothing is left of any stream.
func (p *pair) close(t testing.TB) {
	t.Helper()
	_ = p.recv.Close()
	_ = p.send.Close()
	checkEmpty(t, "frontend", p.recv.Stats())
	checkEmpty(t, "worker", p.send.Stats())
}

// settled waits until both sides hold nothing, which is what a finished exchange must come to by itself.
func (p *pair) settled(t testing.TB) {
	t.Helper()
	waitFor(t, "no stream is left", p.isSettled)
}

func (p *pair) isSettled() bool {
	a, b := p.recv.Stats(), p.send.Stats()
	return a.OpenStreams == 0 && b.OpenStreams == 0 && a.ClosingSlots == 0
}

// open mints a stream and attaches it.
func (p *pair) open(t testing.TB) (*InStream, *OutStream) {
	t.Helper()
	var in *InStream
	waitFor(t, "a lane to mint on", func() bool {
		var err error
		if in, err = p.recv.Mint(t.Context(), p.id, MintOptions{}); err != nil && !errors.Is(err, ErrNoLink) {
			t.Fatal(err)
		}
		return err == nil
	})
	out, err := p.send.Attach(in.Terms())
	if err != nil {
		t.Fatal(err)
	}
	return in, out
}

// waitFor polls a state; it is how tests wait for what no event tells.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// makeRecord is record i of stream id: it proves which it is, and that it is whole.
func makeRecord(b []byte, id uint64, i, size int) []byte {
	b = binary.BigEndian.AppendUint64(b[:0], id)
	b = binary.BigEndian.AppendUint64(b, uint64(i))
	for len(b) < size {
		b = append(b, byte(uint64(len(b))*31+id+uint64(i)))
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// checkRecord is the oracle of makeRecord.
func checkRecord(b []byte, id uint64, i int) error {
	if len(b) < 20 {
		return fmt.Errorf("record %d of stream %d has %d bytes", i, id, len(b))
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return fmt.Errorf("record %d of stream %d is damaged", i, id)
	}
	if a, n := binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:]); a != id || n != uint64(i) {
		return fmt.Errorf("expected record %d of stream %d, got record %d of stream %d", i, id, n, a)
	}
	return nil
}

// onRecords and onPass are OnRecords and OnPass with the end as it came.
func (s *InStream) onRecords(sink func(records [][]byte, end *End) bool) {
	s.OnRecords(func(records [][]byte, err error) bool { return sink(records, endIn(err)) }, endAs)
}

func (s *InStream) onPass(sink func(pass *Pass, records [][]byte, end *End) bool) {
	s.OnPass(func(pass *Pass, records [][]byte, err error) bool { return sink(pass, records, endIn(err)) }, endAs)
}

func endAs(end *End) error { return &EndError{End: *end} }

func endIn(err error) *End {
	if err == nil {
		return nil
	}
	return &err.(*EndError).End
}

// inFakeTime runs a test in a bubble of synctest.
func inFakeTime(t *testing.T, name string, fn func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

// took checks how long something took since begun.
func took(t *testing.T, what string, begun time.Time, low, high time.Duration) {
	t.Helper()
	if d := time.Since(begun); d < low-5*time.Millisecond || d > high { // begun may have been read a little late
		t.Errorf("%s after %v, expected %v to %v", what, d, low, high)
	}
}

// carry sends record i on a stream and takes it at the other end.
func carry(t *testing.T, in *InStream, out *OutStream, i int) {
	t.Helper()
	if err := out.Send(t.Context(), makeRecord(nil, 1, i, 64)); err != nil {
		t.Fatalf("record %d: %v", i, err)
	}
	rec, err := in.Next(t.Context())
	if err == nil {
		err = checkRecord(rec, 1, i)
	}
	if err != nil {
		t.Fatalf("record %d: %v", i, err)
	}
}

// finish ends a stream on both sides.
func finish(t *testing.T, in *InStream, out *OutStream) {
	t.Helper()
	if err := out.Complete(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Next(t.Context()); err != io.EOF {
		t.Fatalf("expected io.EOF, got %v", err)
	}
	_ = in.Close()
}
