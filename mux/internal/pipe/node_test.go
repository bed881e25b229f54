package pipe

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Sides of a test: a frontend and a worker.
const (
	front = iota
	worker
)

// testNow is a node's time, which in a bubble of synctest does not begin where it does outside.
func testNow() int64 { return time.Now().UnixNano() }

// rig is two pipes that are each other's peers, and what each has said and heard. Every record says by its slot in
// which place it was put and as which one there, and its body follows from that; so the order is checked in each
// place.
type rig struct {
	t     testing.TB
	nodes [2]*node
	pings wire.Pings
}

// node is one side: the pipe's handler and keeper.
type node struct {
	t      testing.TB
	rig    *rig
	side   int
	pipe   *Pipe
	budget *Budget
	stats  *Stats

	said [2][]said // in each place, under the pipe's lock

	heard [2]int // of the peer's records, by place; the reader's alone
	body  []byte

	mu     sync.Mutex
	sealed []wire.Slot
	downs  []*DownError
	drains int
}

type said struct {
	kind wire.Kind
	size int
}

// rigConfig is what differs between tests.
type rigConfig struct {
	Config
	limit int64 // of the budget
	held  int64 // taken off it by somebody else
}

func newRig(t testing.TB, cfg rigConfig) *rig {
	g := &rig{t: t, pings: wire.Pings{Idle: time.Hour, IdleSilence: 3 * time.Hour, Active: time.Hour,
		ActiveSilence: 3 * time.Hour}}
	if cfg.limit == 0 {
		cfg.limit = 64 << 20
	}
	if cfg.LogLimit == 0 {
		cfg.LogLimit = 256 << 10
	}
	for i := range g.nodes {
		n := &node{t: t, rig: g, side: i, budget: NewBudget(cfg.limit), stats: &Stats{}}
		if !n.budget.Take(cfg.held) {
			t.Fatal("the budget has no room for what the test holds")
		}
		c := cfg.Config
		c.FromWorker, c.Now, c.Budget, c.Stats = i == front, testNow, n.budget, n.stats
		n.pipe = New(c, n, n)
		g.nodes[i] = n
	}
	return g
}

func (g *rig) front() *node  { return g.nodes[front] }
func (g *rig) worker() *node { return g.nodes[worker] }

// session is what a connection's HELLOs would have agreed on.
func (g *rig) session(side int, c transport.Conn, peerReceived uint64) Session {
	return Session{
		Conn: c, PeerReceived: peerReceived, PeerLog: wire.MinLog, Pings: g.pings, SendPings: side == front,
		Plane: &PlaneStats{},
	}
}

// connect takes both over to a connection, in the order of docs/wire.md 4.
func (g *rig) connect(a, b transport.Conn) {
	g.t.Helper()
	f, w := g.front().pipe, g.worker().pipe
	received := f.Stop()
	answer := g.accept(b, received)
	if err := f.Start(g.session(front, a, answer)); err != nil {
		g.t.Fatalf("the frontend refuses an honest answer: %v", err)
	}
	if w.Received() < answer {
		g.t.Fatal("received went back")
	}
}

// accept is the worker's part of a takeover: check, stop the old connection, answer.
func (g *rig) accept(b transport.Conn, received uint64) (answer uint64) {
	g.t.Helper()
	w := g.worker().pipe
	if err := w.Check(received); err != nil {
		g.t.Fatalf("the worker refuses an honest HELLO: %v", err)
	}
	answer = w.Stop()
	if err := w.Start(g.session(worker, b, received)); err != nil {
		g.t.Fatalf("the worker refuses an honest HELLO: %v", err)
	}
	return answer
}

func (g *rig) stop() {
	for _, n := range g.nodes {
		n.pipe.Stop()
	}
}

// up says whether both have a connection.
func (g *rig) up() bool { return g.front().pipe.Up() && g.worker().pipe.Up() }

// settled says whether everybody has heard all, and knows it.
func (g *rig) settled() bool { return g.front().pipe.Settled() && g.worker().pipe.Settled() }

// check is the oracle: what was heard is what was said, and everything was given back.
func (g *rig) check() {
	g.t.Helper()
	g.stop()
	for _, n := range g.nodes {
		peer := g.nodes[1-n.side]
		p := n.pipe
		for at := range n.said {
			if len(n.said[at]) != peer.heard[at] {
				g.t.Errorf("side %d said %d records in place %d, %d were heard", n.side, len(n.said[at]), at,
					peer.heard[at])
			}
		}
		if p.sealed != peer.pipe.Received() {
			g.t.Errorf("side %d sealed %d bytes, %d were received", n.side, p.sealed, peer.pipe.Received())
		}
		n.checkSealed()
		n.checkEmpty()
	}
}

// checkSealed compares the ENDs that were said with those of which Sealed told.
func (n *node) checkSealed() {
	n.t.Helper()
	var told [2][]wire.Slot
	for _, s := range n.sealed {
		at := Place(s.Generation())
		told[at] = append(told[at], s)
	}
	for at := range n.said {
		ends := 0
		for i, r := range n.said[at] {
			if r.kind != wire.End {
				continue
			}
			if ends >= len(told[at]) || told[at][ends] != slotOf(Place(at), i) {
				n.t.Fatalf("side %d: END %d of place %d: Sealed told of %v", n.side, ends, at, told[at])
			}
			ends++
		}
		if ends != len(told[at]) {
			n.t.Errorf("side %d: %d ENDs of place %d, Sealed told of %d", n.side, ends, at, len(told[at]))
		}
	}
}

// checkEmpty discards the pipe, which has no connection, and looks for what it has not given back.
func (n *node) checkEmpty() {
	n.t.Helper()
	logs := n.budget.Logs()
	if kept := int64(n.pipe.sealed - n.pipe.acked); logs != kept {
		n.t.Errorf("side %d: the budget counts %d bytes of logs, %d are kept", n.side, logs, kept)
	}
	n.pipe.Discard()
	if n.budget.Logs() != 0 || n.budget.out != 0 {
		n.t.Errorf("side %d: %d bytes of logs and %d chunks were not given back", n.side, n.budget.Logs(), n.budget.out)
	}
	seen := make(map[*chunk]bool)
	for _, free := range n.budget.free {
		for _, c := range free {
			if seen[c] || c.refs != 0 {
				n.t.Errorf("side %d: a chunk was given back twice or is held %d times", n.side, c.refs)
			}
			seen[c] = true
		}
	}
	if held := len(n.pipe.batch.held); held != 0 || n.pipe.writing || n.pipe.inline || len(n.pipe.ended) != 0 {
		n.t.Errorf("side %d: the batch still has %d chunks, or somebody writes", n.side, held)
	}
}

// slotOf names record i of a place. Its generation is the place.
func slotOf(at Place, i int) wire.Slot { return wire.MakeSlot(uint32(1+i), uint8(at)) }

func fill(b []byte, at Place, i int) {
	for j := range b {
		b[j] = byte(j*7 + i*31 + int(at)*101)
	}
}

// Kinds that a side sends.
var kinds = [2][]wire.Kind{
	front:  {wire.Consumed, wire.Stop, wire.Kill, wire.Grant},
	worker: {wire.Data, wire.Data, wire.Data, wire.DataMore, wire.Open, wire.End, wire.Claim},
}

// say appends a record of n bytes of body, or as many as its kind may have.
func (n *node) say(at Place, k wire.Kind, size int) {
	n.pipe.Lock()
	defer n.pipe.Unlock()
	n.sayLocked(at, k, size)
	if len(n.said[at])%7 != 0 { // it walks all that waits
		return
	}
	if wrong := n.pipe.broken(); wrong != "" {
		n.t.Errorf("side %d: %s", n.side, wrong)
	}
}

func (n *node) sayLocked(at Place, k wire.Kind, size int) {
	if n.pipe.cfg.NoUrgent {
		at = Bulk
	}
	s := slotOf(at, len(n.said[at]))
	switch k {
	case wire.Data, wire.DataMore:
		size = min(size, wire.MaxData-wire.HeaderSize)
	case wire.End:
		size = min(size, wire.MaxEnd)
	case wire.Claim, wire.Grant:
		at, s, size = Bulk, 0, min(size, wire.MaxControl)
	default:
		size = min(size, wire.MaxControl)
	}
	i := len(n.said[at])
	body := n.pipe.Reserve(at, k, s, size)
	if len(body) != size {
		n.t.Fatalf("Reserve of %d bytes gave %d", size, len(body))
	}
	fill(body, at, i)
	n.said[at] = append(n.said[at], said{k, size})
}

// sayRandom appends a record of a random kind and size.
func (n *node) sayRandom(r *rand.Rand) {
	at := Place(r.IntN(2))
	k := kinds[n.side][r.IntN(len(kinds[n.side]))]
	size := r.IntN(100)
	switch r.IntN(20) {
	case 0:
		size = r.IntN(64 << 10)
	case 1:
		size = 64 << 10
	case 2:
		size = 0
	}
	n.say(at, k, size)
}

// Record implements Handler: the next record of a place is what the peer said there.
func (n *node) Record(h wire.Header, body []byte) error {
	at := Place(h.Slot.Generation())
	peer := n.rig.nodes[1-n.side]
	i := n.heard[at]
	peer.pipe.Lock()
	if i >= len(peer.said[at]) {
		peer.pipe.Unlock()
		n.t.Errorf("side %d: %v heard, but nothing more was said in place %d", n.side, h, at)
		return &wire.Error{Kind: h.Kind, Slot: h.Slot, Reason: "was not said"}
	}
	want := peer.said[at][i]
	peer.pipe.Unlock()
	if n.heard[at]++; h.Slot != 0 && h.Slot != slotOf(at, i) || h.Kind != want.kind || len(body) != want.size {
		n.t.Errorf("side %d heard %v with %d bytes as number %d of place %d, said was %v", n.side, h, len(body), i, at,
			want)
		return &wire.Error{Kind: h.Kind, Slot: h.Slot, Reason: "was not said"}
	}
	n.body = append(n.body[:0], body...)
	fill(n.body, at, i)
	if string(n.body) != string(body) {
		n.t.Errorf("side %d: the body of number %d of place %d is not what was said", n.side, i, at)
	}
	return nil
}

// BatchDone implements Handler.
func (n *node) BatchDone() {}

// Sealed implements Handler.
func (n *node) Sealed(s wire.Slot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sealed = append(n.sealed, s)
}

// Skips implements Handler.
func (n *node) Skips(wire.Slot) bool { return false }

// Draining implements Keeper.
func (n *node) Draining() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drains++
}

// Down implements Keeper.
func (n *node) Down(e *DownError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.downs = append(n.downs, e)
}

// downReasons are the reasons of the deaths that the keeper was told of.
func (n *node) downReasons() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := ""
	for _, d := range n.downs {
		s += fmt.Sprint(d.Reason, " ")
	}
	return s
}
