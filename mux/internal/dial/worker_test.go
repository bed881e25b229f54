package dial

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/pipe"
	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// guard is how long a test waits for what must come at once.
const guard = 20 * time.Second

var (
	frontID  = transport.NodeID{0xf}
	workerID = transport.NodeID{0x3}
)

// worker is the other end of links, made of raw records: it does what an honest worker does, but for what the script
// says.
type worker struct {
	t      testing.TB
	id     transport.NodeID
	wg     sync.WaitGroup
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	resume time.Duration
	pings  wire.Pings
	script func(c *workerConn) bool // nil, or it says whether the worker goes on with a connection as usual
	mute   bool                     // PINGs get no answer
	links  map[uint64]*workerLink
	conns  []*workerConn // all that there were
}

// workerLink is what it knows of a link.
type workerLink struct {
	front, own [16]byte // secrets
	named      bool     // somebody has named own
	lanes      []*workerLane
}

type workerLane struct {
	got, sent []byte // the two strings
	acked     int    // of sent, when the last connection began
	serial    uint64
	conn      *workerConn // the last one
}

// workerConn is one connection.
type workerConn struct {
	w     *worker
	conn  transport.Conn
	hello *wire.HelloBody
	lane  *workerLane
	at    time.Time // of HELLO

	mu   sync.Mutex // one write at a time
	away []wire.GoAwayCode
	end  time.Time // when it was found dead; zero while it lives
}

func newWorker(t testing.TB, id transport.NodeID) *worker {
	w := &worker{t: t, id: id, resume: time.Minute, pings: ownPings, links: make(map[uint64]*workerLink)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// listen has it serve a listener of a transport, and gives the addresses.
func (w *worker) listen(tr transport.Transport, bind string, n int) (addresses []string) {
	w.t.Helper()
	ln, err := tr.Listen(w.ctx, bind, n)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, a := range ln.Endpoints() {
		addresses = append(addresses, a.String())
	}
	w.wg.Go(func() {
		for {
			conn, err := ln.Accept(w.ctx)
			if err != nil {
				return
			}
			w.wg.Go(func() { w.serve(&workerConn{w: w, conn: conn}) })
		}
	})
	w.t.Cleanup(func() { w.close(); _ = ln.Close(); _ = tr.Close() })
	return addresses
}

func (w *worker) close() {
	w.cancel()
	for _, c := range w.all() {
		_ = c.conn.Close()
	}
	w.wg.Wait()
}

// all are the connections on which a HELLO came, in order.
func (w *worker) all() []*workerConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*workerConn(nil), w.conns...)
}

func (w *worker) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *worker) serve(c *workerConn) {
	defer c.conn.Close()
	stop := context.AfterFunc(w.ctx, func() { _ = c.conn.Close() })
	defer stop()
	h, err := pipe.ReadHello(c.conn)
	if err != nil {
		return
	}
	c.hello, c.at = h, time.Now()
	w.mu.Lock()
	w.conns = append(w.conns, c)
	script := w.script
	w.mu.Unlock()
	if script != nil && !script(c) {
		return
	}
	if code := w.take(c); code != wire.AwayDraining {
		pipe.Refuse(c.conn, nil, code, "the script refuses")
		return
	}
	c.pump()
	c.mu.Lock()
	c.end = time.Now()
	c.mu.Unlock()
}

// take is a takeover as the protocol says, and the answer to HELLO.
func (w *worker) take(c *workerConn) wire.GoAwayCode {
	h := c.hello
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.links[h.Link]
	switch {
	case k == nil && h.PeerSecret != [16]byte{}:
		return wire.AwayUnknownLink
	case k == nil:
		k = &workerLink{front: h.OwnSecret, own: [16]byte{byte(h.Link), 7}}
		for range h.Lanes {
			k.lanes = append(k.lanes, &workerLane{})
		}
		w.links[h.Link] = k
	case h.PeerSecret == [16]byte{} && (k.named || h.OwnSecret != k.front || h.Lane != 0):
		return wire.AwayUnknownLink
	case h.PeerSecret != [16]byte{} && !pipe.SameSecrets(k.own, k.front, h):
		return wire.AwayUnknownLink
	}
	k.named = h.PeerSecret != [16]byte{}
	if int(h.Lanes) != len(k.lanes) {
		w.t.Errorf("HELLO says %d lanes, the first one said %d", h.Lanes, len(k.lanes))
	}
	l := k.lanes[h.Lane]
	if h.Serial <= l.serial {
		w.t.Errorf("serial %d after %d", h.Serial, l.serial)
		return wire.AwayLimit
	}
	if int(h.Received) < l.acked || int(h.Received) > len(l.sent) {
		w.t.Errorf("%d bytes received, %d were acknowledged and %d sent", h.Received, l.acked, len(l.sent))
		return wire.AwayProtocol
	}
	if l.conn != nil {
		_ = l.conn.conn.Close()
	}
	l.serial, l.acked, l.conn, c.lane = h.Serial, int(h.Received), c, l
	rest := bytes.Clone(l.sent[l.acked:])
	own := w.answer(h)
	own.OwnSecret, own.Received = k.own, uint64(len(l.got))
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.conn.Write(append(wire.AppendHello(nil, own), rest...))
	return wire.AwayDraining
}

// answer is the HELLO that answers one; the caller sets OwnSecret and Received.
func (w *worker) answer(h *wire.HelloBody) *wire.HelloBody {
	return &wire.HelloBody{Lowest: 1, Highest: 1, Node: w.id, Link: h.Link, Lane: h.Lane, Lanes: h.Lanes,
		MaxStreams: 1000,
		Serial:     h.Serial, Log: 1 << 20, Resume: w.resume, Pings: w.pings, PeerSecret: h.OwnSecret}
}

// pump reads a connection to its end. What comes on a connection that is not the lane's current one does not count.
func (c *workerConn) pump() {
	for {
		var head [wire.HeaderSize]byte
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			return
		}
		h := wire.ParseHeader(head[:])
		body := make([]byte, h.Length)
		if _, err := io.ReadFull(c.conn, body); err != nil {
			return
		}
		switch {
		case h.Kind == wire.Ping:
			value, _, _ := wire.ParsePing(h.Kind, body)
			c.w.mu.Lock()
			mute, got := c.w.mute, len(c.lane.got)
			c.w.mu.Unlock()
			if !mute {
				c.send(wire.AppendPing(nil, wire.Pong, value, uint64(got)))
			}
		case h.Kind == wire.GoAway:
			code, _, _ := wire.ParseGoAway(body)
			c.mu.Lock()
			c.away = append(c.away, code)
			c.mu.Unlock()
			return // as an honest peer does
		case h.Kind.Counted():
			c.w.mu.Lock()
			if c.lane.conn == c {
				c.lane.got = append(append(c.lane.got, head[:]...), body...)
			}
			c.w.mu.Unlock()
		}
	}
}

// send writes records that do not count.
func (c *workerConn) send(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.conn.Write(b)
}

// put adds records to a lane's string and writes them.
func (w *worker) put(link uint64, lane int, b []byte) {
	w.mu.Lock()
	l := w.links[link].lanes[lane]
	l.sent = append(l.sent, b...)
	c := l.conn
	w.mu.Unlock()
	c.send(b)
}

// got is a lane's string.
func (w *worker) got(link uint64, lane int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.links[link].lanes[lane].got)
}

func (c *workerConn) ended() (at time.Time, away []wire.GoAwayCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end, append([]wire.GoAwayCode(nil), c.away...)
}
