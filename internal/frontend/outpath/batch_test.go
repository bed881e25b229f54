package outpath

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// batch is one of a pool that ends with the test.
func batch(t *testing.T) *Batch {
	t.Helper()
	pool := new(Batches)
	b, err := pool.Get()
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: CI has to run it", err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close(); pool.Close() })
	return b
}

func never(t *testing.T) func() { return func() { t.Error("notified") } }

func TestBatchOfManyConnections(t *testing.T) {
	b := batch(t)
	const n = batchOps + 40
	var conns []*Conn
	var got []chan []byte
	for i := range n {
		c, client := pair(t)
		c.Inline(true)
		conns = append(conns, c)
		got = append(got, reads(t, client, 2*(100+i)))
	}
	for range 2 {
		for i, c := range conns {
			if !b.Begin(c) {
				t.Fatalf("connection %d cannot be begun", i)
			}
			for _, p := range [][]byte{bytes.Repeat([]byte{byte(i)}, 60), bytes.Repeat([]byte{byte(i)}, 40+i)} {
				if k, err := c.Write(p); k != len(p) || err != nil || !b.Room() {
					t.Fatal(k, err)
				}
			}
			b.End(never(t))
		}
		b.Finish()
		again, err := b.pool.Get()
		if err != nil || again != b {
			t.Fatalf("another batch: %v", err)
		}
	}
	for i := range got {
		if p := <-got[i]; !bytes.Equal(p, bytes.Repeat([]byte{byte(i)}, 2*(100+i))) {
			t.Errorf("client %d has other bytes", i)
		}
	}
	b.Finish()
}

// TestBatchToFullConnection writes until the client's buffers are full: what is left is held, told of once, and comes
// before later bytes.
func TestBatchToFullConnection(t *testing.T) {
	b := batch(t)
	c, client := pair(t)
	c.tcp.SetWriteBuffer(16 << 10)
	c.Inline(true)
	var want []byte
	told := 0
	for i := 0; told == 0; i++ {
		if !b.Begin(c) {
			t.Fatal("not begun")
		}
		for k := 0; k < 4 && b.Room(); k++ {
			p := bytes.Repeat([]byte{byte(i), byte(k)}, 15000)
			if n, err := c.Write(p); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			want = append(want, p...)
		}
		b.End(func() { told++ })
		b.flush()
		if i > 10000 {
			t.Fatal("the client that reads nothing never fills up")
		}
	}
	if told != 1 || c.Held() == 0 {
		t.Errorf("told %d times, %d held", told, c.Held())
	}
	if b.Begin(c) {
		t.Error("a connection that holds bytes can be begun")
	}
	c.Inline(false)
	got := reads(t, client, len(want)+4)
	if _, err := c.Write([]byte("tail")); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-got, append(want, "tail"...)) {
		t.Error("the client has other bytes")
	}
	b.Finish()
}

// TestCloseWaitsForABatch: a descriptor that a batch is about to send to must not become another connection's.
func TestCloseWaitsForABatch(t *testing.T) {
	b := batch(t)
	c, client := pair(t)
	c.Inline(true)
	if !b.Begin(c) {
		t.Fatal("not begun")
	}
	if _, err := c.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	b.End(never(t))
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case <-closed:
		t.Fatal("closed under the batch")
	case <-time.After(20 * time.Millisecond):
	}
	b.flush()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got := <-reads(t, client, 10); string(got) != "last words" {
		t.Errorf("%q", got)
	}
	if b.Begin(c) {
		t.Error("a closed connection can be begun")
	}
	b.Finish()
}

func TestBatchToClientThatHasGone(t *testing.T) {
	b := batch(t)
	c, client := pair(t)
	client.SetLinger(0)
	client.Close()
	c.Inline(true)
	told := false
	for end := time.Now().Add(patience); !told && time.Now().Before(end); {
		if !b.Begin(c) {
			t.Fatal("not begun")
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		b.End(func() { told = true })
		b.flush()
	}
	if err := c.Err(); !told || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("told %v, %v", told, err)
	}
	b.Finish()
}

// TestBatchTakesNoneThatMayWait: Begin waits for nobody.
func TestBatchTakesNoneThatMayWait(t *testing.T) {
	b := batch(t)
	c, _ := pair(t)
	if b.Begin(c) {
		t.Error("a connection that is not inline")
	}
	c.Inline(true)
	c.overTLS.Store(true)
	if b.Begin(c) {
		t.Error("a connection under TLS")
	}
	c.overTLS.Store(false)
	other := batch(t)
	if !other.Begin(c) {
		t.Fatal("not begun")
	}
	if b.Begin(c) {
		t.Error("a connection of another batch")
	}
	other.End(never(t))
	if !b.Begin(c) {
		t.Error("a connection that was begun and not written to is free again")
	}
	b.End(never(t))
	other.Finish()
	b.Finish()
}

func TestRingThatFails(t *testing.T) {
	b := batch(t)
	c, _ := pair(t)
	c.Inline(true)
	if !b.Begin(c) {
		t.Fatal("not begun")
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	told := false
	b.End(func() { told = true })
	if err := b.ring.close(); err != nil { // as of a kernel whose ring does not do it; closing it again does nothing
		t.Fatal(err)
	}
	b.flush()
	if !told || !errors.Is(c.Err(), syscall.EBADF) {
		t.Errorf("told %v, %v", told, c.Err())
	}
	other, _ := pair(t)
	other.Inline(true)
	if b.Begin(other) {
		t.Error("a batch whose ring has failed takes connections")
	}
	if _, err := b.pool.Get(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Get: %v", err)
	}
	b.Finish()
}

func TestBatchDoesNotAllocate(t *testing.T) {
	b := batch(t)
	c, client := pair(t)
	c.Inline(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := make([]byte, 64<<10); ; {
			if _, err := client.Read(p); err != nil {
				return
			}
		}
	}()
	p, notify := make([]byte, 215), never(t)
	if n := testing.AllocsPerRun(200, func() {
		if b.Begin(c) {
			c.Write(p)
			b.End(notify)
		}
		b.flush()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	b.Finish()
	c.Close()
	<-done
}
