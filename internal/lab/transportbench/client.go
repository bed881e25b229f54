package transportbench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

const (
	transportIdle = 30 * time.Second
	dialTimeout   = 20 * time.Second
	inFlight      = 64
)

// Modes of sending.
const (
	OneAtATime = "one at a time"
	InFlight   = "64 in flight"
	Pipelined  = "pipelined" // from the server, as responses travel
	ToServer   = "to the server"
)

// Measured is one repetition of a cell.
type Measured struct {
	Messages int           `json:"messages"`
	Bytes    int64         `json:"bytes"` // of bodies, one way
	Elapsed  time.Duration `json:"elapsed_ns"`
	P50      time.Duration `json:"p50_ns,omitempty"` // one at a time
	Drops    Drops         `json:"drops"`
}

// WrongCountError says that not all messages arrived whole.
type WrongCountError struct{ Want, Got, WantBytes, GotBytes uint64 }

func (e *WrongCountError) Error() string {
	return fmt.Sprintf("%d messages with %d bytes were sent, %d with %d bytes have arrived", e.Want, e.WantBytes, e.Got,
		e.GotBytes)
}

// run measures one cell once: messages of a size in one mode over so many lanes.
func run(ctx context.Context, ctl *Control, log *slog.Logger, s Spec, lanes, size, messages int,
	mode string) (m Measured, err error) {
	var o Opened
	if err := ctl.Call("open", s, &o); err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, ctl.Call("close", nil, nil)) }()
	tr, _, err := s.NewTransport(log)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	conns := make([]transport.Conn, lanes)
	for i := range conns {
		dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
		conns[i], err = tr.Dial(dialCtx, transport.DialRequest{Address: o.Endpoints[i%len(o.Endpoints)], Lane: i})
		cancel()
		if err != nil {
			return m, err
		}
	}
	stop := context.AfterFunc(ctx, func() { tr.Close() })
	defer stop()
	body := make([]byte, size)
	// The first messages make windows and buffers grow, and let a QUIC acceptor see its lanes.
	if err := each(conns,
		func(i int, c transport.Conn) error { _, err := pingPong(c, body, 8); return err }); err != nil {
		return m, err
	}
	m.Messages, m.Bytes = messages, int64(messages)*int64(size)
	share := func(i int) int { return Share(messages, lanes, i) }
	var times []time.Duration
	began := time.Now()
	err = each(conns, func(i int, c transport.Conn) (err error) {
		switch mode {
		case OneAtATime:
			var t []time.Duration
			if t, err = pingPong(c, body, share(i)); i == 0 {
				times = t
			}
		case InFlight:
			err = windowed(c, body, share(i))
		case ToServer:
			err = toServer(c, body, share(i))
		default:
			err = fromServer(c, size, share(i))
		}
		return err
	})
	m.Elapsed = time.Since(began)
	if err != nil {
		return m, err
	}
	if len(times) > 0 {
		slices.Sort(times)
		m.P50 = times[len(times)/2]
	}
	if err := ctl.Call("drops", nil, &m.Drops); err != nil {
		return m, err
	}
	if s.Plane == transport.PlaneQUIC {
		c := tr.Counters() // both sides count
		m.Drops.add(c.SocketDrops, c.LibraryDrops, c.PacketsLost)
	} else {
		m.Drops = Drops{} // TCP's are the kernel's business
	}
	return m, nil
}

// each runs f for all lanes at once and joins the errors.
func each(conns []transport.Conn, f func(int, transport.Conn) error) error {
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() { errs[i] = f(i, c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pingPong sends messages one at a time and returns how long each took.
func pingPong(c transport.Conn, body []byte, n int) ([]time.Duration, error) {
	in, out := bufio.NewReaderSize(c, buffered), bufio.NewWriterSize(c, headLen+len(body))
	buf, times := make([]byte, len(body)), make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		err := errors.Join(writeMessage(out, kindEcho, body), out.Flush())
		if err != nil {
			return nil, err
		}
		if err := readEcho(in, buf, len(body)); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

func readEcho(in *bufio.Reader, buf []byte, size int) error {
	kind, got, err := readMessage(in, buf)
	if err == nil && (kind != kindEcho || len(got) != size) {
		err = fmt.Errorf("an answer of kind %d with %d bytes to a message with %d", kind, len(got), size)
	}
	return err
}

// windowed keeps 64 messages under way.
func windowed(c transport.Conn, body []byte, n int) error {
	places := make(chan struct{}, inFlight)
	done := make(chan struct{})
	var writeErr error
	go func() { // joined below
		defer close(done)
		out := bufio.NewWriterSize(c, buffered)
		for range n {
			select {
			case places <- struct{}{}:
			default: // no answer is there: what is buffered must leave
				if writeErr = out.Flush(); writeErr != nil {
					return
				}
				places <- struct{}{}
			}
			if writeErr = writeMessage(out, kindEcho, body); writeErr != nil {
				return
			}
		}
		writeErr = out.Flush()
	}()
	in, buf := bufio.NewReaderSize(c, buffered), make([]byte, len(body))
	var err error
	for i := 0; i < n && err == nil; i++ {
		if err = readEcho(in, buf, len(body)); err == nil {
			<-places
		}
	}
	if err != nil {
		_ = c.Close() // lets the writer go
		for {
			select {
			case <-places:
				continue
			case <-done:
			}
			break
		}
	}
	<-done
	return errors.Join(err, writeErr)
}

// fromServer asks for messages and counts those that come.
func fromServer(c transport.Conn, size, n int) error {
	out := bufio.NewWriter(c)
	if err := errors.Join(writeMessage(out, kindSend, ask(n, size)), out.Flush()); err != nil {
		return err
	}
	in, buf := bufio.NewReaderSize(c, buffered), make([]byte, size)
	var got, bytes uint64
	for {
		kind, body, err := readMessage(in, buf)
		switch {
		case err != nil:
			return err
		case kind == kindCount:
			got, bytes = got+1, bytes+uint64(len(body))
			continue
		case kind != kindFin:
			return fmt.Errorf("a message of kind %d among those that were asked for", kind)
		}
		return checkCount(n, size, got, bytes)
	}
}

func checkCount(n, size int, got, bytes uint64) error {
	if want := uint64(n); got != want || bytes != want*uint64(size) {
		return &WrongCountError{want, got, want * uint64(size), bytes}
	}
	return nil
}

// toServer sends messages that are not answered, then asks how many have arrived.
func toServer(c transport.Conn, body []byte, n int) error {
	out := bufio.NewWriterSize(c, buffered)
	for range n {
		if err := writeMessage(out, kindCount, body); err != nil {
			return err
		}
	}
	if err := errors.Join(writeMessage(out, kindFin, nil), out.Flush()); err != nil {
		return err
	}
	kind, total, err := readMessage(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	if kind != kindFin || len(total) != 16 {
		return fmt.Errorf("an answer of kind %d with %d bytes to the end of the messages", kind, len(total))
	}
	return checkCount(n, len(body), binary.BigEndian.Uint64(total), binary.BigEndian.Uint64(total[8:]))
}
