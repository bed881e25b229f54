package loadgen

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// goroutineClient serves each slot from a goroutine of its own, over net.Conn. It runs everywhere and speaks TLS.
type goroutineClient struct {
	e       *engine
	dialing chan struct{} // bounds the connects under way
}

// maxDialing is how many connects are under way at a time, so that a listener's queue is not overrun.
const maxDialing = 128

func newGoroutineClient(e *engine) *goroutineClient {
	for range 8 { // few enough histograms, and little contention
		e.locals = append(e.locals, newLocal())
	}
	return &goroutineClient{e: e, dialing: make(chan struct{}, maxDialing)}
}

func (c *goroutineClient) kind() string { return ClientGoroutines }

func (c *goroutineClient) run(ctx context.Context) error {
	var wg sync.WaitGroup
	for i := range c.e.cfg.Concurrency {
		wg.Go(func() { c.slot(ctx, i) }) // ends when the plan has nothing more, or with ctx
	}
	probe, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() { // joined below
		defer close(done)
		c.probe(probe)
	}()
	wg.Wait()
	stop()
	<-done
	return nil
}

// probe measures how late this process's goroutines run.
func (c *goroutineClient) probe(ctx context.Context) {
	t := time.NewTimer(probeInterval)
	defer t.Stop()
	for {
		due := c.e.now() + int64(probeInterval)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l := c.e.locals[0]
		l.mu.Lock()
		l.late(c.e.now() - due)
		l.mu.Unlock()
		t.Reset(probeInterval)
	}
}

// wait sleeps until at, false when ctx ended or stop was closed before.
func (c *goroutineClient) wait(ctx context.Context, at int64, stop <-chan struct{}) bool {
	d := time.Duration(at - c.e.now())
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	case <-t.C:
		return true
	}
}

// connSlot is one slot's connection and exchange.
type connSlot struct {
	x    exchange
	conn net.Conn
	buf  []byte
	out  []byte
}

func (c *goroutineClient) slot(ctx context.Context, i int) {
	e := c.e
	s := connSlot{x: exchange{e: e, l: e.locals[i%len(e.locals)]}, buf: make([]byte, 4<<10)}
	defer func() {
		if s.conn != nil {
			_ = s.conn.Close() // the run is over; nothing is lost with it
		}
	}()
	if e.cfg.Rate == 0 && !c.wait(ctx, e.plan.rampStart(i), e.plan.halted) {
		return
	}
	fails := 0
	for ctx.Err() == nil {
		if fails > 0 && !c.wait(ctx, e.now()+int64(pause(fails)), e.plan.halted) {
			return
		}
		j, _, v := e.plan.take(e.now(), true)
		if v == verdictStop {
			return
		}
		ahead := j.intended > e.now()
		ok := !ahead || c.wait(ctx, j.intended, e.plan.asked)
		if !ok && ctx.Err() == nil {
			return
		}
		s.x.begin(j)
		if ahead {
			s.x.l.mu.Lock()
			if !ok {
				s.x.broke(report.EndCanceled, nil, e.now())
			} else {
				s.x.l.late(e.now() - j.intended)
			}
			s.x.l.mu.Unlock()
			if !ok {
				return
			}
		}
		c.one(ctx, &s)
		if fails++; s.x.row.OK() {
			fails = 0
		}
	}
}

// one sends the request of s.x and reads its response.
func (c *goroutineClient) one(ctx context.Context, s *connSlot) {
	e := c.e
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	s.out = e.target.appendRequest(s.out[:0], s.x.row.ID, s.x.osl)
	for {
		reused := s.conn != nil
		err := c.attempt(ctx, s, deadline)
		if !s.x.ended && reused && !s.x.heard && ctx.Err() == nil && s.x.row.Retries == 0 {
			s.x.row.Retries++ // the server had closed the kept connection
			continue
		}
		if !s.x.ended {
			s.x.l.mu.Lock()
			how := endOf(parent(ctx), err)
			if how == report.EndConnect && s.x.row.Sent != report.Absent {
				s.x.closed(err, e.now())
			} else {
				s.x.broke(how, err, e.now())
			}
			s.x.l.mu.Unlock()
		}
		return
	}
}

// parent tells an interrupt, which ends the run's context, from the end of a request's own time.
func parent(ctx context.Context) context.Context {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return context.Background()
	}
	return ctx
}

func (c *goroutineClient) attempt(ctx context.Context, s *connSlot, deadline time.Time) (err error) {
	if s.conn == nil {
		if s.conn, err = c.dial(ctx); err != nil {
			s.conn = nil
			return err
		}
	}
	conn := s.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // wakes the reads and writes below
	defer func() {
		if !stop() || err != nil || !s.x.keepable() {
			_ = conn.Close()
			s.conn = nil
		}
	}()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	s.x.sent(c.e.now())
	if _, err := conn.Write(s.out); err != nil {
		return err
	}
	for {
		n, err := conn.Read(s.buf)
		now := c.e.now()
		s.x.l.mu.Lock()
		ended := n > 0 && s.x.read(s.buf[:n], now)
		if !ended && err != nil && s.x.heard && endOf(parent(ctx), err) == report.EndConnect {
			s.x.closed(err, now)
			ended = true
		}
		grace := s.x.complete()
		s.x.l.mu.Unlock()
		switch {
		case ended:
			return nil
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case grace:
			if err := conn.SetReadDeadline(time.Now().Add(doneGrace)); err != nil {
				return err
			}
		}
	}
}

func (c *goroutineClient) dial(ctx context.Context) (net.Conn, error) {
	select {
	case c.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-c.dialing }()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", c.e.addr)
	if err != nil || !c.e.target.tls {
		return conn, err
	}
	t := tls.Client(conn, &tls.Config{ServerName: c.e.target.host, NextProtos: []string{"http/1.1"}})
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t, nil
}
