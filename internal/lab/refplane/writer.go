package refplane

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/laneway-ai/laneway/responseplane"
)

// Writer is one response at the worker. Its writing methods are for one goroutine at a time. It is what an engine
// writes to, as a *responseplane.Writer is.
type Writer struct {
	w  *Worker
	l  *link
	id uint64

	stopping, ended, gone atomic.Bool
	onRoom                func()
}

// TryPut queues a record, or says responseplane.ErrWindowFull.
func (wr *Writer) TryPut(rec []byte) error {
	if err := wr.put(kindData, rec); err != nil {
		return err
	}
	wr.w.stats.recordsOut.Add(1)
	return nil
}

func (wr *Writer) put(kind byte, body []byte) error {
	if err := wr.Err(); err != nil {
		return err
	}
	if err := wr.l.out.put(kind, wr.id, body, wr.onRoom); err != nil {
		return err
	}
	if wr.w.cfg.Mode != Batched {
		wr.l.out.flush()
	}
	return nil
}

// OnWritable sets what is called after an ErrWindowFull, once, when there is room or the response is lost.
func (wr *Writer) OnWritable(fn func()) { wr.onRoom = fn }

// Err is nil while records are wanted.
func (wr *Writer) Err() error {
	if wr.gone.Load() {
		return responseplane.ErrLost
	}
	return nil
}

// Stopping tells whether the response is to end early.
func (wr *Writer) StopRequested() bool { return wr.stopping.Load() }

// PutComplete ends the response.
func (wr *Writer) PutComplete(trailer []byte) error { return wr.finish(kindEnd, trailer) }

// Fail ends the response as failed.
func (wr *Writer) Fail(f responseplane.Failure) error {
	return wr.finish(kindFail, append(binary.BigEndian.AppendUint16(nil, uint16(f.Code)), f.Text...))
}

func (wr *Writer) finish(kind byte, body []byte) error {
	if err := wr.Err(); err != nil {
		return err
	}
	if wr.ended.Load() {
		return responseplane.ErrClosed
	}
	if err := wr.l.out.put(kind, wr.id, body, nil); err != nil {
		wr.lose()
		return err
	}
	wr.ended.Store(true)
	wr.w.stats.ended[kindOf[kind]].Add(1)
	wr.w.stats.open.Add(-1)
	wr.l.remove(wr.id)
	if wr.w.cfg.Mode != Batched || kind == kindFail {
		wr.l.out.flush()
	}
	return nil
}

// lose ends a response whose connection has died.
func (wr *Writer) lose() {
	if !wr.ended.Load() && wr.gone.CompareAndSwap(false, true) {
		wr.w.stats.ended[responseplane.EndLost].Add(1)
		wr.w.stats.open.Add(-1)
	}
}

// Abandon gives up a response of which nothing was put, when its request was refused; the frontend has that reply and
// hears nothing here.
func (wr *Writer) Abandon() {
	if wr.ended.CompareAndSwap(false, true) {
		wr.w.stats.ended[responseplane.EndKilled].Add(1)
		wr.w.stats.open.Add(-1)
		wr.l.remove(wr.id)
		wr.l.out.flush() // with PerResponse the connection ends
	}
}

// kindOf is the end that a last frame says.
var kindOf = map[byte]responseplane.EndKind{kindEnd: responseplane.EndComplete, kindFail: responseplane.EndFailed}
