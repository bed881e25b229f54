package mux

import (
	"errors"
	"fmt"
	"io"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

const (
	readBufferStart = 16 << 10
	readBufferMax   = wire.MaxData // holds the longest record whole
)

// recordHandler is the side of a link that takes what a lane's reader has decoded.
type recordHandler interface {
	// record handles one record that is not the lane's own. body is valid during the call. An error is the peer's
	// fault and ends the lane.
	record(l *lane, h wire.Header, body []byte) error
	// batchDone is called once after each read, when all its whole records were handled.
	batchDone(l *lane)
	// violated is called with the error of record before the lane is closed: before the peer can move streams away.
	violated(l *lane, err error)
	// goAway takes a GOAWAY that does not end the lane.
	goAway(l *lane, code wire.GoAwayCode, text string)
}

// warmer is a recordHandler that looks at what a read has brought before the first record of it is handled.
type warmer interface{ warm(b []byte) }

// readLoop reads the lane until it dies and returns why. fromWorker is who the peer is.
func (l *lane) readLoop(h recordHandler, fromWorker bool) *laneError {
	buf := make([]byte, readBufferStart)
	have, skip := 0, 0
	ahead, _ := h.(warmer)
	for {
		l.waiting.Store(true)
		n, err := l.conn.Read(buf[have:])
		l.waiting.Store(false)
		if n > 0 {
			l.lastRecv.Store(l.node.now())
			full := have+n == len(buf)
			have += n
			if ahead != nil && skip == 0 {
				ahead.warm(buf[:have])
			}
			used, records, perr := l.decode(h, buf[:have], fromWorker, &skip)
			l.node.stats.read(records, n)
			l.bytesIn.Add(uint64(n))
			l.recordsIn.Add(uint64(records))
			l.plane.bytesIn.Add(uint64(n))
			l.plane.recordsIn.Add(uint64(records))
			h.batchDone(l)
			if perr != nil {
				h.violated(l, perr)
				return l.ended(perr)
			}
			have = copy(buf, buf[used:have])
			if full && len(buf) < readBufferMax {
				buf = append(buf, make([]byte, len(buf))...)
			}
		}
		if err != nil {
			return l.ended(err)
		}
	}
}

// decode handles the whole records of b; it returns how many bytes they were and how many of them ended a DATA.
func (l *lane) decode(h recordHandler, b []byte, fromWorker bool, skip *int) (used, records int, err error) {
	for {
		if *skip > 0 {
			n := min(*skip, len(b)-used)
			*skip -= n
			used += n
		}
		if len(b)-used < wire.HeaderSize {
			return used, records, nil
		}
		head := wire.ParseHeader(b[used:])
		if head.Kind.Skipped() {
			*skip = wire.HeaderSize + head.Length
			continue
		}
		if err := head.Check(fromWorker); err != nil {
			return used, records, err
		}
		end := used + wire.HeaderSize + head.Length
		if end > len(b) {
			return used, records, nil
		}
		body := b[used+wire.HeaderSize : end]
		used = end
		if head.Kind == wire.Data {
			records++
		}
		if head.Kind.OfBoth() {
			err = l.control(h, head, body)
		} else {
			err = h.record(l, head, body)
		}
		if err != nil {
			return used, records, err
		}
	}
}

// control handles the records of the lane itself that both sides send.
func (l *lane) control(h recordHandler, head wire.Header, body []byte) error {
	switch head.Kind {
	case wire.Ping:
		v, err := wire.ParseUint64(head, body)
		if err != nil {
			return err
		}
		l.sendPong(v)
	case wire.Pong:
		v, err := wire.ParseUint64(head, body)
		if err != nil {
			return err
		}
		l.ponged.Store(int64(v))
		l.settle(int64(v))
		if rtt := l.node.now() - int64(v); rtt >= 0 && int64(v) > 0 {
			l.rtt.Store(max(rtt, 1))
		}
	case wire.GoAway:
		code, text, err := wire.ParseGoAway(body)
		if err != nil {
			return err
		}
		if code != wire.AwayDraining {
			return &goAwayError{code: code, text: text}
		}
		h.goAway(l, code, text)
	default: // HELLO again
		return &wire.Error{Kind: head.Kind, Reason: "came twice"}
	}
	return nil
}

// ended closes the lane for the reason that err is and tells the peer where it is at fault.
func (l *lane) ended(err error) *laneError {
	var bad *wire.Error
	var away *goAwayError
	switch {
	case errors.As(err, &bad):
		l.refuse(wire.AwayProtocol, bad.Error())
		l.die(deathProtocol, err)
	case errors.As(err, &away):
		l.die(deathRefused, err)
	case errors.Is(err, io.EOF):
		l.die(deathPeer, fmt.Errorf("the peer ended its side: %w", err))
	case errors.Is(err, transport.ErrClosed):
		l.die(deathClosed, err)
	default:
		l.die(deathPeer, err)
	}
	return l.deadErr()
}

// refuse tells the peer why the lane ends, where that can be done without waiting; it is a courtesy.
func (l *lane) refuse(code wire.GoAwayCode, text string) {
	if l.try == nil {
		return
	}
	l.mu.Lock()
	if l.writing || l.dead != nil {
		l.mu.Unlock()
		return
	}
	l.writing = true
	l.mu.Unlock()
	_, _ = l.try.TryWrite(wire.AppendGoAway(nil, code, text))
	l.mu.Lock()
	l.writing = false
	l.mu.Unlock()
	_ = l.conn.CloseWrite()
}
