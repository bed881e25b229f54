package quic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"go.uber.org/goleak"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/transport"
)

// pair is two nodes with one open lane.
func pair(t *testing.T, dial, listen Config) (a, b *Transport, ln transport.Listener, d, acc transport.Conn) {
	t.Helper()
	a, _ = node(t, dial)
	b, _ = node(t, listen)
	t.Cleanup(func() { a.Close(); b.Close() })
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	d, acc = lanes(t, a, ln)
	return a, b, ln, d, acc
}

func lanes(t *testing.T, a *Transport, ln transport.Listener) (d, acc transport.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, err := a.Dial(ctx, transport.DialRequest{Address: ln.Endpoints()[0].String(), Lane: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	acc, err = ln.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(acc, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return d, acc
}

func limit(t *testing.T, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/" + name)
	if err != nil {
		t.Skipf("cannot read %s: %v", name, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A process with CAP_NET_ADMIN too gets what the sysctl allows, no more; quic-go would force 7 MiB.
func TestBuffersAreWhatWasAskedForOrTheSysctl(t *testing.T) {
	rmax, wmax := limit(t, "rmem_max"), limit(t, "wmem_max")
	for _, asked := range []int{106_496, 300_000, rmax + wmax} {
		a, b, _, _, _ := pair(t, Config{RecvBuffer: asked, SendBuffer: asked},
			Config{RecvBuffer: asked, SendBuffer: asked})
		for _, s := range append(a.Sockets(), b.Sockets()...) {
			if s.RecvAsked != asked || s.RecvGranted != 2*min(asked, rmax) || s.SendAsked != asked ||
				s.SendGranted != 2*min(asked, wmax) {
				t.Errorf("asked for %d: %+v (rmem_max %d, wmem_max %d)", asked, s, rmax, wmax)
			}
		}
	}
}

func TestClampedBuffersWarnOncePerSocketAndDirection(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, nil))
	over := max(limit(t, "rmem_max"), limit(t, "wmem_max")) + 4096
	_, b, _, _, _ := pair(t, Config{}, Config{RecvBuffer: over, SendBuffer: over, Logger: log})
	b.Sockets()
	mu.Lock()
	defer mu.Unlock()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), out.String())
	}
	for i, sysctl := range []string{"net.core.rmem_max", "net.core.wmem_max"} {
		for _, want := range []string{sysctl, "asked=" + strconv.Itoa(over), "granted=" +
			strconv.Itoa(2*limit(t, strings.TrimPrefix(sysctl, "net.core.")))} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%q does not say %q", lines[i], want)
			}
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestWindowFollowsTheGrantedBuffer(t *testing.T) {
	for _, c := range []struct{ set, granted, lane, endpoint int }{
		{0, 425_984, 106_496, 106_496}, {0, 16 << 20, 1 << 20, 192 << 10}, {0, 2304, 64 << 10, 64 << 10},
		{4 << 20, 425_984, 4 << 20, 4 << 20},
	} {
		cfg := Config{StreamWindow: c.set}
		if got := cfg.window(c.granted, laneWindow); got != c.lane {
			t.Errorf("window %d at %d granted: %d of a dialled lane, want %d", c.set, c.granted, got, c.lane)
		}
		if got := cfg.window(c.granted, endpointWindow); got != c.endpoint {
			t.Errorf("window %d at %d granted: %d at an endpoint, want %d", c.set, c.granted, got, c.endpoint)
		}
	}
	if packets := endpointWindow / (MinMTU - 60); packets >= queueFull*3/4 {
		t.Errorf("the window of an endpoint is %d small packets, of %d that the queue holds", packets, queueFull)
	}
	tr, _ := node(t, Config{})
	defer tr.Close()
	cfg := tr.quicConfig(106_496)
	if cfg.MaxStreamReceiveWindow != 106_496 || cfg.InitialStreamReceiveWindow != 106_496 ||
		cfg.MaxConnectionReceiveWindow != 159_744 || cfg.InitialConnectionReceiveWindow != 159_744 {
		t.Errorf("%+v", cfg)
	}
}

// What the reader's side holds of a lane that nobody reads is the window.
func TestWindowBoundsWhatAPeerMaySend(t *testing.T) {
	_, b, _, d, acc := pair(t, Config{}, Config{StreamWindow: 64 << 10})
	wrote := make(chan error, 1)
	go func() { _, err := d.Write(make([]byte, 1<<20)); wrote <- err }()
	for b.Counters().PacketsIn < 40 { // at least 45 packets of 1,452 bytes until the window is full
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-wrote:
		t.Fatalf("1 MiB went into a window of 64 KiB: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	in := b.Sockets()[0].PacketsIn
	if in > 100 {
		t.Errorf("%d packets came for a window of 64 KiB", in)
	}
	acc.Close()
	if err := <-wrote; err == nil {
		t.Error("the write ended without an error")
	}
}

func TestDialToAClosedPortIsRefusedAtOnce(t *testing.T) {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := c.LocalAddr().String()
	c.Close()
	tr, _ := node(t, Config{})
	defer tr.Close()
	_, err = tr.Dial(t.Context(), transport.DialRequest{Address: addr})
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), addr) {
		t.Errorf("dial: %v", err)
	}
}

// A peer that is killed says nothing; the kernel of its host does.
func TestDeadPeerIsSeenAtTheNextPacket(t *testing.T) {
	_, _, ln, d, _ := pair(t, Config{}, Config{})
	ln.(*listener).endpoints[0].sock.UDPConn.Close() // no CONNECTION_CLOSE
	for {
		if _, err := d.Write(make([]byte, 100)); err != nil {
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("write to a dead peer: %v", err)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("read from a dead peer: %v", err)
	}
}

func TestRestartedPeerResetsOldLanes(t *testing.T) {
	key := [32]byte{1, 2, 3}
	_, b, ln, d, _ := pair(t, Config{}, Config{StatelessResetKey: &key})
	bind := ln.Endpoints()[0].String()
	ln.(*listener).endpoints[0].sock.UDPConn.Close() // killed
	b.Close()
	again, _ := node(t, Config{StatelessResetKey: &key})
	defer again.Close()
	if _, err := again.Listen(t.Context(), bind, 1); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := d.Write(make([]byte, 100)); err != nil {
			var reset *quicgo.StatelessResetError
			if !errors.As(err, &reset) && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("write to a restarted peer: %v", err)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestConnectionWithoutAStreamIsDropped(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	id, _ := transport.NewIdentity()
	b, err := New(Config{Identity: id, HandshakeTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ln, err := b.Listen(t.Context(), "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := node(t, Config{})
	defer a.Close()
	d, err := a.Dial(t.Context(), transport.DialRequest{Address: ln.Endpoints()[0].String()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Read(make([]byte, 1))
	var app *quicgo.ApplicationError
	if !errors.As(err, &app) || !app.Remote || app.ErrorCode != codeNoStream {
		t.Errorf("read: %v, want code %d from the peer", err, codeNoStream)
	}
	if b.Counters().AcceptErrors != 1 {
		t.Errorf("%+v", b.Counters())
	}
	lanes(t, a, ln) // the loop was not held up
}

func TestOffloadsAreReported(t *testing.T) {
	a, b, _, _, _ := pair(t, Config{}, Config{DisableGRO: true, DisableGSO: true})
	if s := a.Sockets()[0]; !s.GRO || !s.GSO {
		t.Errorf("a kernel from 5.0 on has both: %+v", s)
	}
	if s := b.Sockets()[0]; s.GRO || s.GSO {
		t.Errorf("both are off: %+v", s)
	}
}

// Packets are the same on both sides of a socket pair, whatever is joined on the way.
func TestDatagramsAreCountedOneByOne(t *testing.T) {
	for _, off := range []bool{false, true} {
		a, b, _, d, acc := pair(t, Config{DisableGRO: off, DisableGSO: off}, Config{DisableGRO: off, DisableGSO: off})
		const size = 4 << 20
		go d.Write(make([]byte, size))
		if _, err := io.CopyN(io.Discard, acc, size); err != nil {
			t.Fatal(err)
		}
		as, bs := a.Sockets()[0], b.Sockets()[0]
		if bs.PacketsIn < size/1452 {
			t.Errorf("offloads off %v: %d datagrams carried %d bytes", off, bs.PacketsIn, size)
		}
		for deadline := time.Now().Add(10 * time.Second); ; {
			as, bs = a.Sockets()[0], b.Sockets()[0]
			if as.PacketsOut == bs.PacketsIn+bs.Drops && bs.PacketsOut == as.PacketsIn+as.Drops {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("offloads off %v: %+v and %+v", off, as, bs)
			}
			time.Sleep(5 * time.Millisecond)
		}
		a.Close()
		b.Close()
	}
}

// Datagrams that were sent as one batch come out one by one, with the sender's address, also through small slices.
func TestGROSplitsBatches(t *testing.T) {
	tr, _ := node(t, Config{})
	defer tr.Close()
	s, err := tr.listenSocket(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.gro == nil {
		t.Skip("no UDP_GRO here")
	}
	to := s.LocalAddr().(*net.UDPAddr)
	var from [2]*net.UDPConn
	for i := range from {
		if from[i], err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			t.Fatal(err)
		}
		defer from[i].Close()
	}
	batch := make([]byte, 10*1200+77)
	for i := range batch {
		batch[i] = byte(i / 1200)
	}
	if _, _, err := from[0].WriteMsgUDP(batch, segmentMsg(1200), to); err != nil {
		t.Fatal(err)
	}
	from[1].WriteToUDP([]byte("single"), to)
	from[1].WriteToUDP(nil, to)
	from[1].WriteToUDP(bytes.Repeat([]byte{9}, 3000), to)
	from[0].WriteToUDP([]byte("last"), to)

	type datagram struct {
		data string
		from string
	}
	var got []datagram
	for len(got) < 15 {
		ms := make([]ipv4.Message, 3)
		for i := range ms {
			ms[i].Buffers = [][]byte{make([]byte, 1452)}
			ms[i].OOB = make([]byte, 128)
		}
		s.SetReadDeadline(time.Now().Add(30 * time.Second))
		n, err := s.ReadBatch(ms, 0)
		if err != nil {
			t.Fatalf("after %d datagrams: %v", len(got), err)
		}
		for _, m := range ms[:n] {
			got = append(got, datagram{string(m.Buffers[0][:m.N]), m.Addr.String()})
		}
	}
	a0, a1 := from[0].LocalAddr().String(), from[1].LocalAddr().String()
	for i, d := range got[:11] {
		want := 1200
		if i == 10 {
			want = 77
		}
		if len(d.data) != want || d.data[0] != byte(i) || d.data[want-1] != byte(i) || d.from != a0 {
			t.Errorf("datagram %d: %d bytes of %d from %s", i, len(d.data), d.data[0], d.from)
		}
	}
	if got[11] != (datagram{"single", a1}) || got[12] != (datagram{"", a1}) || len(got[13].data) != 1452 ||
		got[14] != (datagram{"last", a0}) {
		t.Errorf("the rest: %q", got[11:])
	}
	if in := s.in.Load(); in != 15 {
		t.Errorf("%d datagrams are counted, want 15", in)
	}
}

func segmentMsg(size uint16) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(ptr(b))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	nativePut16(b[unix.CmsgLen(0):], size)
	return b
}

func TestKernelDropsAreCounted(t *testing.T) {
	tr, _ := node(t, Config{RecvBuffer: 4096})
	defer tr.Close()
	s, err := tr.listenSocket(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := net.Dial("udp", s.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 100 {
		c.Write(make([]byte, 1000))
	}
	if d := s.info(transport.RoleEndpoint, -1).Drops; d < 50 || d > 99 {
		t.Errorf("%d drops of 100 datagrams in 8 KiB", d)
	}
}

func TestLibraryDropsAreCounted(t *testing.T) {
	tr, _ := node(t, Config{})
	defer tr.Close()
	r := recorder{&tr.drops}.tracer(t.Context(), true, quicgo.ConnectionID{}).AddProducer()
	r.RecordEvent(qlog.PacketDropped{Trigger: qlog.PacketDropDOSPrevention})
	r.RecordEvent(qlog.PacketDropped{Trigger: qlog.PacketDropDuplicate})
	r.RecordEvent(qlog.PacketSent{})
	if n := tr.Counters().LibraryDrops; n != 1 {
		t.Errorf("%d drops are counted, want 1", n)
	}
}

func TestConfigComplaints(t *testing.T) {
	_, err := New(Config{RecvBuffer: -1, SendBuffer: 1 << 31, MaxMTU: 9000, StreamWindow: 1000, IdleTimeout: -1,
		HandshakeTimeout: -1})
	if err == nil {
		t.Fatal("no complaint")
	}
	for _, want := range []string{"Identity", "receive buffer of -1", "send buffer of 2147483648", "MTU of 9000",
		"1452", "stream window of 1000", "idle timeout", "handshake timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	id, _ := transport.NewIdentity()
	for mtu, ok := range map[int]bool{0: true, 1199: false, 1200: true, 1452: true, 1453: false} {
		if _, err := New(Config{Identity: id, MaxMTU: mtu}); (err == nil) != ok {
			t.Errorf("MTU %d: %v", mtu, err)
		}
	}
}

// With any accepted MTU no datagram is larger than that.
func TestMaxMTUHolds(t *testing.T) {
	for _, mtu := range []int{1200, 1452} {
		a, _, _, d, acc := pair(t, Config{MaxMTU: mtu}, Config{MaxMTU: mtu})
		const size = 1 << 20
		go d.Write(make([]byte, size))
		if _, err := io.CopyN(io.Discard, acc, size); err != nil {
			t.Fatal(err)
		}
		s := a.Sockets()[0]
		if least := uint64(size / mtu); s.PacketsOut < least {
			t.Errorf("MTU %d: %d datagrams for %d bytes", mtu, s.PacketsOut, size)
		}
		if most := uint64(size/(mtu-60)) + 200; s.PacketsOut > most {
			t.Errorf("MTU %d: %d datagrams for %d bytes, want at most %d", mtu, s.PacketsOut, size, most)
		}
	}
}

// Packets that are read from a lane's socket and do not come out of the connection are reported, and do not stop the
// lane for ever.
func TestPacketsThatTheConnectionNeverSees(t *testing.T) {
	a, b, ln, d, acc := pair(t, Config{}, Config{})
	// The lane's socket takes datagrams from its endpoint only: send strays from there. Short header, unknown
	// connection id.
	stray := append([]byte{0x40}, make([]byte, 60)...)
	to := d.Info().Local.(*net.UDPAddr)
	for range queueHigh + 20 {
		if _, err := ln.(*listener).endpoints[0].tr.WriteTo(stray, to); err != nil {
			t.Fatal(err)
		}
	}
	const size = 1 << 20
	go acc.Write(make([]byte, size))
	if _, err := io.CopyN(io.Discard, d, size); err != nil {
		t.Fatal(err)
	}
	if n := a.Counters().LibraryDrops; n <= queueHigh {
		t.Errorf("%d packets are reported, %d never reached the connection", n, queueHigh+20)
	}
	if n := b.Counters().LibraryDrops; n != 0 {
		t.Errorf("the sender reports %d", n)
	}
}

// A receiver that gets more than its connection can queue leaves it in the kernel's buffer. A host that gives the
// connection no processor for long enough may have it look stuck, but not each time.
func TestBulkIsNotDroppedInsideTheLibrary(t *testing.T) {
	var why string
	for range 3 {
		if why = bulk(t); why == "" {
			return
		}
	}
	t.Error(why)
}

// bulk says what was dropped of 32 MiB, or seems so.
func bulk(t *testing.T) string {
	a, b, _, d, acc := pair(t, Config{}, Config{})
	const size = 32 << 20
	go acc.Write(make([]byte, size))
	if _, err := io.CopyN(io.Discard, d, size); err != nil {
		t.Fatal(err)
	}
	received := a.Counters().PacketsIn
	as := a.Sockets()[0]
	// Equal but for what is queued now, and for a few of the handshake that the connection counts twice.
	if lib := a.Counters().LibraryDrops; lib != 0 || as.PacketsIn+16 < received || as.PacketsIn > received+256 {
		return fmt.Sprintf("%d library drops, %d datagrams read, %d received, %d kernel drops, %d lost", lib,
			as.PacketsIn, received, as.Drops, b.Counters().PacketsLost)
	}
	return ""
}
