package outpath

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// pair is a connection of Listen and its client.
func pair(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client.(*net.TCPConn).SetReadBuffer(4096) // fixed: the kernel no longer lets it grow
	server, err := Listen(l, nil).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return server.(*Conn), client.(*net.TCPConn)
}

// fill writes inline until the client's and the kernel's buffers are full and some bytes are held; it returns what it
// wrote.
func fill(t *testing.T, c *Conn) []byte {
	t.Helper()
	c.tcp.SetWriteBuffer(16 << 10)
	c.Inline(true)
	var all []byte
	for i := 0; c.Held() < Buffer/2; i++ { // more than the kernel will still find room for
		p := bytes.Repeat([]byte{byte(i)}, 3000)
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Fatalf("write %d: %d %v", i, n, err)
		}
		all = append(all, p...)
		if i > 10000 {
			t.Fatal("the client that reads nothing never fills up")
		}
	}
	return all
}

// reads has the client read n bytes.
func reads(t *testing.T, client net.Conn, n int) chan []byte {
	client.(*net.TCPConn).SetReadBuffer(1 << 20) // or the test is slow
	done := make(chan []byte, 1)
	go func() {
		p := make([]byte, n)
		k, err := io.ReadFull(client, p)
		if err != nil {
			t.Errorf("read: %v", err)
		}
		done <- p[:k]
	}()
	return done
}

func TestWhatIsHeldComesFirst(t *testing.T) {
	for _, how := range []string{"settle", "write"} {
		c, client := pair(t)
		want := fill(t, c)
		more := []byte("held behind what is held")
		if _, err := c.Write(more); err != nil {
			t.Fatal(err)
		}
		want = append(want, more...)
		c.Inline(false)
		got := reads(t, client, len(want)+4)
		if how == "settle" {
			if err := c.Settle(); err != nil || c.Held() != 0 {
				t.Fatalf("%v, %d held", err, c.Held())
			}
		}
		if _, err := c.Write([]byte("tail")); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(<-got, append(want, "tail"...)) {
			t.Errorf("%s: the client has other bytes", how)
		}
		if c.rest != nil && cap(c.rest) > keep {
			t.Errorf("a buffer of %d bytes stays", cap(c.rest))
		}
	}
}

// TestSwitches writes in both ways in turn to a client that reads at its own pace.
func TestSwitches(t *testing.T) {
	c, client := pair(t)
	c.tcp.SetWriteBuffer(16 << 10)
	rnd := rand.New(rand.NewPCG(1, 2))
	var want []byte
	const size = 4 << 20
	got := reads(t, client, size)
	for len(want) < size {
		p := make([]byte, min(1+rnd.IntN(20000), size-len(want)))
		for i := range p {
			p[i] = byte(len(want) + i*7)
		}
		inline := rnd.IntN(4) > 0 && c.Held()+len(p) <= Buffer
		c.Inline(inline)
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Fatalf("inline=%v: %d %v", inline, n, err)
		}
		want = append(want, p...)
	}
	c.Inline(false)
	if err := c.Settle(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-got, want) {
		t.Error("the client has other bytes")
	}
}

func TestFull(t *testing.T) {
	c, _ := pair(t)
	fill(t, c)
	var err error
	for range Buffer/1000 + 1 {
		if _, err = c.Write(make([]byte, 1000)); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("%v", err)
	}
	// What would follow the gap must not go out.
	if _, err := c.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Errorf("after it: %v", err)
	}
	c.Inline(false)
	if _, err := c.Write([]byte("x")); !errors.Is(err, ErrFull) {
		t.Errorf("after it, not inline: %v", err)
	}
	if err := c.Settle(); !errors.Is(err, ErrFull) {
		t.Errorf("Settle: %v", err)
	}
}

func TestSettleHasADeadline(t *testing.T) {
	c, _ := pair(t)
	fill(t, c)
	c.Inline(false)
	c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if err := c.Settle(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	c.SetWriteDeadline(time.Time{})
	if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after a write that was cut: %v", err)
	}
}

// TestPassedDeadlineIsNoInlineError: a stream may be silent for longer than a write may take.
func TestPassedDeadlineIsNoInlineError(t *testing.T) {
	c, client := pair(t)
	c.SetWriteDeadline(time.Now().Add(-time.Second))
	c.Inline(true)
	if _, err := c.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if got := <-reads(t, client, 4); string(got) != "late" {
		t.Errorf("%q", got)
	}
}

func TestCloseEndsAWriteThatWaits(t *testing.T) {
	c, _ := pair(t)
	fill(t, c)
	c.Inline(false)
	ended := make(chan error, 1)
	go func() { ended <- c.Settle() }()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("Settle waits on a closed connection")
	}
	c.Inline(true)
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("inline after Close: %v", err)
	}
}

func TestClientThatHasGone(t *testing.T) {
	c, client := pair(t)
	client.SetLinger(0)
	client.Close()
	c.Inline(true)
	for end := time.Now().Add(patience); ; {
		_, err := c.Write([]byte("x"))
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%v", err)
		}
	}
}

// TestUnderNetHTTP serves HTTP/1.1 and 2, with and without TLS, and says which requests know their connection.
func TestUnderNetHTTP(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 64<<10)
	for _, c := range []struct {
		name   string
		tls    bool
		protos []string
		proto  int
	}{{"HTTP/1.1", false, nil, 1}, {"TLS", true, []string{"http/1.1"}, 1}, {"TLS, HTTP/2", true, []string{"h2"}, 2}} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if From(r.Context()) == nil || r.ProtoMajor != c.proto {
					t.Errorf("HTTP/%d, connection %v", r.ProtoMajor, From(r.Context()))
				}
				io.Copy(w, io.TeeReader(r.Body, io.Discard))
			}))
			s.Listener = Listen(s.Listener, nil)
			s.Config.ConnContext = ConnContext
			s.EnableHTTP2 = c.proto == 2
			if c.tls {
				s.TLS = &tls.Config{NextProtos: c.protos}
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			for range 3 {
				resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader(big))
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != big || resp.ProtoMajor != c.proto {
					t.Fatalf("%d bytes over HTTP/%d, %v", len(got), resp.ProtoMajor, err)
				}
			}
			s.Client().CloseIdleConnections()
		})
	}
	if From(context.Background()) != nil {
		t.Error("a context without a connection has one")
	}
}

func TestInlineWriteDoesNotAllocate(t *testing.T) {
	c, client := pair(t)
	done := make(chan struct{})
	go func() { io.Copy(io.Discard, client); close(done) }()
	c.Inline(true)
	p := make([]byte, 215)
	if n := testing.AllocsPerRun(200, func() { c.Write(p) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
	c.Close()
	<-done
}
