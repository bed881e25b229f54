package pipe

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
)

// script reads the steps of a fuzzed conversation.
type script []byte

func (s *script) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b) % n
}

// wide is a number below 1<<bits, with the small ones as likely as the large.
func (s *script) wide(bits int) int {
	return (s.next(256)<<8 | s.next(256)) << max(bits-16, 0) >> s.next(bits+1) & (1<<bits - 1)
}

// FuzzPipe has two pipes talk while connections die after given bytes, are replaced, or were heard of by the worker
// alone, and while the peer names numbers that it has not received. What was said is heard, once and in order.
func FuzzPipe(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 16 {
		b := make([]byte, 40<<(i%4))
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, mode byte, steps []byte) {
		m := modes[int(mode)%len(modes)]
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, m.cfg)
			s := script(steps)
			for seed := uint64(0); len(s) > 0 && seed < 2000 && !t.Failed(); seed++ {
				n := g.nodes[s.next(2)]
				switch s.next(12) {
				default:
					n.say(Place(s.next(2)), kinds[n.side][s.next(len(kinds[n.side]))], s.wide(17))
				case 5, 6:
					n.pipe.Flush(ByFlush)
				case 7:
					cut := [2]int{-1, -1}
					cut[s.next(2)] = s.wide(20)
					if s.next(2) == 0 {
						cut = [2]int{-1, -1}
					}
					g.connect(newLink(seed, 1+s.wide(18), cut).ends(m.try))
				case 8:
					_, b := newLink(seed, 1+s.wide(18), [2]int{-1, -1}).ends(m.try)
					g.accept(b, g.front().pipe.Stop())
				case 9:
					time.Sleep(time.Duration(s.wide(16)) * time.Microsecond)
				case 10:
					synctest.Wait()
				case 11:
					n.lie(&s)
				}
			}
			g.finish(1, m.try)
		})
	})
}

// lie has the peer name a number that is not what it has received, while nobody else is at work.
func (n *node) lie(s *script) {
	synctest.Wait()
	p := n.pipe
	off := uint64(s.wide(20))
	kind := [...]wire.Kind{wire.Hello, wire.Ping, wire.Pong, wire.Ack}[s.next(4)]
	received := n.rig.nodes[1-n.side].pipe.Received()
	value := p.sealed + 1 + off
	switch s.next(4) {
	case 0:
		value = p.acked - min(p.acked, 1+off)
	case 1:
		value = received - min(received, off) // it has that much, but perhaps only a part of a record
	case 2:
		value = p.cursor + 1 + off // perhaps sealed, but not given to this connection
	}
	acked, cursor := p.acked, p.cursor
	var err error
	bad := value > cursor
	if kind == wire.Hello {
		err = p.Check(value)
		bad = value < acked || value > p.sealed || !p.begins(value)
	} else if kind == wire.Ack {
		err = p.uncounted(kind, wire.AppendAck(nil, value)[wire.HeaderSize:])
	} else {
		err = p.uncounted(kind, wire.AppendPing(nil, kind, 0, value)[wire.HeaderSize:])
	}
	if protocol := new(wire.Error); bad != errors.As(err, &protocol) {
		n.t.Errorf("%v with %d received, true are %d, of [%d, %d, %d): %v", kind, value, received, acked, cursor,
			p.sealed, err)
	}
	if want := max(acked, value); kind != wire.Hello && !bad && p.acked != want || (kind == wire.Hello || bad) &&
		p.acked != acked {
		n.t.Errorf("%v with %d received: acknowledged were %d, now %d", kind, value, acked, p.acked)
	}
	if wrong := p.broken(); wrong != "" {
		n.t.Error(wrong)
	}
}

// feed is a connection whose peer sends given bytes, in parts, and reads nothing.
type feed struct {
	linkEnd
	b     []byte
	parts *rand.Rand
}

func (f *feed) Read(p []byte) (int, error) {
	if len(f.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:1+f.parts.IntN(len(p))], f.b)
	f.b = f.b[n:]
	return n, nil
}

func (f *feed) Write(p []byte) (int, error)   { return len(p), nil }
func (f *feed) WriteBuffers(b [][]byte) error { return nil }

// counting is a handler that takes everything.
type counting struct {
	node
	records int
	bytes   uint64
}

func (c *counting) Record(h wire.Header, body []byte) error {
	c.records++
	c.bytes += uint64(wire.HeaderSize + len(body))
	return nil
}

// FuzzDecode feeds a reader with any bytes, in any parts: it ends as a plain decoder says, and keeps no more than one
// record.
func FuzzDecode(f *testing.F) {
	data := wire.AppendHeader(nil, wire.Data, 3, 0x100)
	data = append(data, "abc"...)
	data = wire.AppendPing(data, wire.Ping, 7, 0)
	f.Add(uint64(1), true, data)
	f.Add(uint64(2), true, wire.AppendAck(data, 1))
	f.Add(uint64(3), false, wire.AppendGoAway(wire.AppendKill(nil, 0x100, 1, wire.EndKilled), wire.AwayDraining,
		"later"))
	f.Add(uint64(4), true, append(append(wire.AppendHeader(nil, 0xE1, 5, 0), "hints"...), data...))
	f.Add(uint64(5), true, append(append(wire.AppendHeader(nil, 0xC1, 5, 0), "hints"...), data...))
	f.Add(uint64(6), true, wire.AppendHeader(data, 0xFF, wire.MaxLength, 0))
	f.Add(uint64(7), true, append(wire.AppendHeader(data, wire.Data, wire.MaxData-wire.HeaderSize, 0x100),
		make([]byte, 70<<10)...))
	f.Add(uint64(8), true, wire.AppendHeader(data, wire.Data, wire.MaxData, 0x100))
	f.Fuzz(func(t *testing.T, seed uint64, fromWorker bool, b []byte) {
		want, records, reason := plainDecode(b, fromWorker)
		c := &counting{node: node{t: t}}
		p := New(Config{
			FromWorker: fromWorker, LogLimit: wire.MinLog, Now: testNow, Budget: NewBudget(1 << 20), Stats: &Stats{},
		}, c, c)
		l := newLink(seed, 1<<20, [2]int{-1, -1})
		conn := &feed{linkEnd{l, 0}, b, rand.New(rand.NewPCG(seed, 1))}
		if err := p.Start(Session{Conn: conn, PeerLog: wire.MinLog}); err != nil {
			t.Fatal(err)
		}
		p.run.worker.Wait() // EOF ends it at the latest
		p.Stop()
		if p.Received() != want || c.records != records {
			t.Errorf("%d bytes of %d records were counted, expected %d of %d", p.Received(), c.records, want, records)
		}
		if got := c.downReasons(); got != reason+" " {
			t.Errorf("it ended as %q, expected %q", got, reason)
		}
	})
}

// plainDecode says how many bytes a reader counts and records it handles, and how the connection ends.
func plainDecode(b []byte, fromWorker bool) (counted uint64, records int, reason string) {
	for len(b) >= wire.HeaderSize {
		h := wire.ParseHeader(b)
		size := wire.HeaderSize + h.Length
		if h.Check(fromWorker) != nil {
			return counted, records, DownProtocol
		}
		if size > len(b) {
			break
		}
		body := b[wire.HeaderSize:size]
		b = b[size:]
		if h.Kind.Counted() {
			counted += uint64(size)
			if !h.Kind.Skipped() {
				records++
			}
			continue
		}
		var received uint64
		var err error
		switch h.Kind {
		case wire.Hello:
			return counted, records, DownProtocol
		case wire.Ping, wire.Pong:
			_, received, err = wire.ParsePing(h.Kind, body)
		case wire.Ack:
			received, err = wire.ParseAck(body)
		case wire.GoAway:
			var code wire.GoAwayCode
			if code, _, err = wire.ParseGoAway(body); err == nil && code != wire.AwayDraining {
				return counted, records, DownRefused
			}
		}
		if err != nil || received > 0 { // nothing was sent
			return counted, records, DownProtocol
		}
	}
	return counted, records, DownPeer
}
