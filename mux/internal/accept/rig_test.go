package accept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guard is how long a test waits for what must come.
const guard = time.Minute

var (
	frontID  = transport.NodeID{0xf}
	workerID = transport.NodeID{0x3}
	pings    = wire.Pings{Idle: 5 * time.Second, IdleSilence: 15 * time.Second, Active: time.Second,
		ActiveSilence: 3 * time.Second}
)

func ip(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 4000} }

// rig is real Links on a listener, under a layer above that notes what it is told.
type rig struct {
	*Links
	front transport.Transport
	addr  string
	logs  *kinds
	late  atomic.Int64 // of the next tick

	mu      sync.Mutex
	queue   []transport.ConnInfo // of the dials to come, where the test sets them
	links   []*stub
	record  func(lane int, h wire.Header) error // nil: all are fine
	begin   func(*Link)
	open    int
	vouched []net.Addr
	wrong   string // what the layer above must never see
}

func config() Config {
	begun := time.Now()
	now := func() int64 { return int64(time.Since(begun)) + 1 }
	return Config{ID: workerID, MaxStreams: 65536, MaxLinks: 1024, Log: 4 << 20, Resume: 10 * time.Second, Pings: pings,
		Now:  now,
		Pipe: pipe.Config{LogLimit: 4 << 20, Now: now, Budget: pipe.NewBudget(1 << 30), Stats: new(pipe.Stats)}}
}

func newRig(t testing.TB, cfg Config, mem memory.Config) *rig {
	n := memory.NewNetwork(mem)
	return connectRig(t, cfg, n.Transport(frontID), n.Transport(workerID), "worker:0")
}

func connectRig(t testing.TB, cfg Config, front, work transport.Transport, bind string) *rig {
	t.Helper()
	ln, err := work.Listen(t.Context(), bind, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{front: front, addr: ln.Endpoints()[0].String(), logs: &kinds{seen: make(map[string]int)}}
	cfg.Logger = slog.New(r.logs)
	r.Links = New(cfg, r)
	if err := r.Serve(&listener{ln, r}); err != nil {
		t.Fatal(err)
	}
	stop, ticking := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ticking)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for last := cfg.Now(); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			now := cfg.Now()
			r.Tick(now, last, time.Duration(r.late.Swap(0)))
			last = now
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-ticking
		inTime(t, "Close", func() {
			if err := r.Close("the worker closes"); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		_ = front.Close()
		_ = work.Close()
		r.check(t)
	})
	return r
}

// check is what must hold of closed Links: every link had exactly one end, and nothing is left.
func (r *rig) check(t testing.TB) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.links {
		if n := len(s.ends()); n != 1 {
			t.Errorf("link %d has %d ends", s.link.number, n)
		}
	}
	if st := r.Stats(); st.Links+st.Lanes+st.Up+st.Handshakes != 0 {
		t.Errorf("closed, and it has %+v", st)
	}
	if n := len(r.register.links) + len(r.register.nodes); n != 0 {
		t.Errorf("closed, and %d links are registered", n)
	}
	for p, links := range r.register.addresses {
		if links != 0 {
			t.Errorf("closed, and %s has %d links", p, links)
		}
	}
	if r.wrong != "" {
		t.Error(r.wrong)
	}
}

func inTime(t testing.TB, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(guard):
		t.Fatalf("%s hangs", what)
	}
}

// Begin implements Owner.
func (r *rig) Begin(k *Link) Streams {
	s := &stub{rig: r, link: k}
	r.mu.Lock()
	r.links = append(r.links, s)
	begin := r.begin
	r.mu.Unlock()
	if begin != nil {
		begin(k)
	}
	return s
}

// stub is the streams of a link.
type stub struct {
	rig  *rig
	link *Link

	mu     sync.Mutex
	events []event
	got    map[int]int // records by lane
	over   bool        // Lost was called
}

type event struct {
	lane     int // -1: of the link
	why      string
	protocol bool
	at       time.Time
}

func (s *stub) Lane(i int) pipe.Handler { return &handler{s, i} }

func (s *stub) LaneLost(i int, why string) { s.note(event{i, why, false, time.Now()}) }

func (s *stub) Lost(why string, protocol bool) { s.note(event{-1, why, protocol, time.Now()}) }

func (s *stub) Open() int {
	s.rig.mu.Lock()
	defer s.rig.mu.Unlock()
	return s.rig.open
}

func (s *stub) note(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alone("event")
	s.events = append(s.events, e)
	s.over = s.over || e.lane < 0
}

// alone checks that nothing comes after Lost. The lock is held.
func (s *stub) alone(what string) {
	if s.over {
		s.rig.mu.Lock()
		defer s.rig.mu.Unlock()
		s.rig.wrong = what + " after the end"
	}
}

func (s *stub) all() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]event(nil), s.events...)
}

func (s *stub) ends() (out []event) {
	for _, e := range s.all() {
		if e.lane < 0 {
			out = append(out, e)
		}
	}
	return out
}

// ended waits for the link's end.
func (s *stub) ended(t testing.TB) event {
	t.Helper()
	wait(t, "the link's end", func() bool { return len(s.ends()) > 0 })
	return s.ends()[0]
}

type handler struct {
	stub *stub
	lane int
}

func (h *handler) Record(head wire.Header, _ []byte) error {
	h.stub.rig.mu.Lock()
	fn := h.stub.rig.record
	h.stub.rig.mu.Unlock()
	h.stub.mu.Lock()
	if h.stub.got == nil {
		h.stub.got = make(map[int]int)
	}
	h.stub.got[h.lane]++
	h.stub.alone("record")
	h.stub.mu.Unlock()
	if fn != nil {
		return fn(h.lane, head)
	}
	return nil
}
func (*handler) BatchDone()           {}
func (*handler) Sealed(wire.Slot)     {}
func (*handler) Skips(wire.Slot) bool { return false }

// of is what the layer above has of a link.
func (r *rig) of(k *Link) *stub {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.links {
		if s.link == k {
			return s
		}
	}
	return nil
}

// link is the link of frontID with the number 1.
func (r *rig) link(t testing.TB) *stub {
	t.Helper()
	k := r.Link(frontID, 1)
	if k == nil {
		t.Fatal("there is no link 1")
	}
	return r.of(k)
}

func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(guard); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// listener gives accepted connections the infos that the test has set for them.
type listener struct {
	transport.Listener
	rig *rig
}

func (l *listener) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	l.rig.mu.Lock()
	defer l.rig.mu.Unlock()
	if len(l.rig.queue) > 0 {
		c = &conn{c, l.rig.queue[0]}
		l.rig.queue = l.rig.queue[1:]
	}
	return c, nil
}

// Vouch is what listeners of planes with a handshake have.
func (l *listener) Vouch(addr net.Addr) {
	l.rig.mu.Lock()
	defer l.rig.mu.Unlock()
	l.rig.vouched = append(l.rig.vouched, addr)
}

type conn struct {
	transport.Conn
	info transport.ConnInfo
}

func (c *conn) Info() transport.ConnInfo { return c.info }

// peer is the frontend's end of a connection, which does what the test says.
type peer struct {
	transport.Conn
	worker wire.HelloBody // the answer
}

// dial opens a connection and says nothing.
func (r *rig) dial(t testing.TB) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	c, err := r.front.Dial(ctx, dialTo(r.addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &peer{Conn: c}
}

// dialAs is dial with what the worker sees of it.
func (r *rig) dialAs(t testing.TB, info transport.ConnInfo) *peer {
	t.Helper()
	r.mu.Lock()
	r.queue = append(r.queue, info)
	r.mu.Unlock()
	return r.dial(t)
}

func (r *rig) dialFrom(t testing.TB, addr net.Addr) *peer {
	t.Helper()
	return r.dialAs(t, transport.ConnInfo{Plane: "tcp", Local: ip(1), Remote: addr, Lane: -1})
}

// hello is the HELLO of a link's first connection.
func hello(number uint64) wire.HelloBody {
	return wire.HelloBody{Lowest: wire.MinVersion, Highest: wire.MaxVersion, Node: frontID, Link: number, Lanes: 2,
		MaxStreams: 9,
		Serial:     1, Log: 1 << 20, Resume: 10 * time.Second, Pings: pings, OwnSecret: [16]byte{1, byte(number)}}
}

// next is the HELLO of a further connection of the link that p is of.
func next(p *peer, lane uint16, serial uint64) wire.HelloBody {
	h := hello(p.worker.Link)
	h.Lane, h.Serial, h.PeerSecret = lane, serial, p.worker.OwnSecret
	h.Lanes, h.OwnSecret = p.worker.Lanes, p.worker.PeerSecret
	return h
}

func (p *peer) send(t testing.TB, b []byte) {
	t.Helper()
	if _, err := p.Write(b); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// greet does the handshake; an error is a refusal.
func (p *peer) greet(t testing.TB, h wire.HelloBody) error {
	t.Helper()
	p.send(t, wire.AppendHello(nil, &h))
	return p.answer()
}

// answer reads the worker's HELLO.
func (p *peer) answer() error {
	h, err := pipe.ReadHello(p)
	if err == nil {
		p.worker = *h
	}
	return err
}

func dialTo(addr string) transport.DialRequest { return transport.DialRequest{Address: addr} }

// up is greet that must go well.
func (p *peer) up(t testing.TB, h wire.HelloBody) *peer {
	t.Helper()
	if err := p.greet(t, h); err != nil {
		t.Fatal(err)
	}
	return p
}

// refusedAs is greet that must be refused.
func (p *peer) refusedAs(t testing.TB, h wire.HelloBody, code wire.GoAwayCode) {
	t.Helper()
	var away *pipe.AwayError
	if err := p.greet(t, h); !errors.As(err, &away) || away.Code != code {
		t.Fatalf("answered by %v, expected %s", err, code)
	}
}

// read takes one record.
func (p *peer) read() (h wire.Header, body []byte, err error) {
	var head [wire.HeaderSize]byte
	if _, err = io.ReadFull(p, head[:]); err != nil {
		return h, nil, err
	}
	h = wire.ParseHeader(head[:])
	body = make([]byte, h.Length)
	_, err = io.ReadFull(p, body)
	return h, body, err
}

// away reads until a GOAWAY with the code.
func (p *peer) away(t testing.TB, code wire.GoAwayCode) {
	t.Helper()
	for {
		h, body, err := p.read()
		if err != nil {
			t.Fatalf("no GOAWAY(%s): %v", code, err)
		}
		if h.Kind != wire.GoAway {
			continue
		}
		if got, text, err := wire.ParseGoAway(body); err != nil || got != code {
			t.Fatalf("GOAWAY(%s): %s, %v; expected %s", got, text, err, code)
		}
		return
	}
}

// dead reads to the end.
func (p *peer) dead(t testing.TB) {
	t.Helper()
	inTime(t, "the connection's end", func() { _, _ = io.Copy(io.Discard, p) })
}

// talk keeps the worker from hearing silence, and reads what it says, until the connection ends.
func (p *peer) talk(t testing.TB) {
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(io.Discard, p) }()
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
				_, _ = p.Write(wire.AppendPing(nil, wire.Ping, 1, 0))
			}
		}
	}()
	t.Cleanup(func() { _ = p.Close(); <-done })
}

func inFakeTime(t *testing.T, name string, fn func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

// took checks how long something took.
func took(t testing.TB, what string, d, low, high time.Duration) {
	t.Helper()
	if d < low || d > high {
		t.Errorf("%s after %v, expected %v to %v", what, d, low, high)
	}
}

// kinds counts the lines of a log by level and message: what a logger that bounds them goes by.
type kinds struct {
	mu   sync.Mutex
	seen map[string]int
}

func (k *kinds) Enabled(context.Context, slog.Level) bool { return true }
func (k *kinds) WithAttrs([]slog.Attr) slog.Handler       { return k }
func (k *kinds) WithGroup(string) slog.Handler            { return k }
func (k *kinds) Handle(_ context.Context, r slog.Record) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[fmt.Sprint(r.Level, " ", r.Message)]++
	return nil
}
