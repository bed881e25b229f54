package peers

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/laneway-ai/laneway/responseplane"
)

const (
	// queueRecords bounds what waits at the worker for the goroutine of a response.
	queueRecords = 32
	// head is the length of a frame's head: u32, the end bit and the length of what follows.
	head   = 4
	endBit = 1 << 31
	// maxFrame bounds a frame that comes.
	maxFrame = 1<<20 + head
)

// errClosed is what a response meets whose side was closed.
var errClosed = errors.New("closed")

// queue is one response at the worker: the engine puts records, the goroutine of the response takes them all at once.
type queue struct {
	wake chan struct{} // capacity 1

	mu       sync.Mutex
	frames   []byte
	records  int
	ended    bool
	err      error
	writable func()
	full     bool // an engine was turned away since the last take

	taken []byte // the goroutine's
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// TryPut implements planebench.PeerWriter.
func (q *queue) TryPut(rec []byte) error {
	q.mu.Lock()
	if err := q.err; err != nil {
		q.mu.Unlock()
		return err
	}
	if q.records == queueRecords {
		q.full = true
		q.mu.Unlock()
		return responseplane.ErrWindowFull
	}
	q.frames = appendFrame(q.frames, rec, 0)
	q.records++
	q.mu.Unlock()
	q.rouse()
	return nil
}

// PutComplete implements planebench.PeerWriter.
func (q *queue) PutComplete(trailer []byte) error {
	q.mu.Lock()
	err := q.err
	if err == nil {
		q.frames = appendFrame(q.frames, trailer, endBit)
		q.ended = true
	}
	q.mu.Unlock()
	q.rouse()
	return err
}

// OnWritable implements planebench.PeerWriter.
func (q *queue) OnWritable(f func()) {
	q.mu.Lock()
	q.writable = f
	q.mu.Unlock()
}

// Err implements planebench.PeerWriter.
func (q *queue) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *queue) rouse() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for frames and returns all that are there, valid until the next call. last says that the end is among
// them.
func (q *queue) take(done <-chan struct{}) (frames []byte, last bool, err error) {
	for {
		q.mu.Lock()
		frames, last = q.frames, q.ended
		var room func()
		if len(frames) > 0 {
			q.frames, q.taken = q.taken[:0], frames
			q.records = 0
			if q.full {
				q.full, room = false, q.writable
			}
		}
		q.mu.Unlock()
		if room != nil {
			room()
		}
		if len(frames) > 0 {
			return frames, last, nil
		}
		select {
		case <-q.wake:
		case <-done:
			q.fail(errClosed)
			return nil, false, errClosed
		}
	}
}

// fail ends the response for the engine.
func (q *queue) fail(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.mu.Unlock()
}

func appendFrame(b, body []byte, flag uint32) []byte {
	return append(binary.BigEndian.AppendUint32(b, flag|uint32(len(body))), body...)
}

// nextFrame splits the first frame off b; ok is false when it is not there as a whole.
func nextFrame(b []byte) (body, rest []byte, end, ok bool, err error) {
	if len(b) < head {
		return nil, b, false, false, nil
	}
	h := binary.BigEndian.Uint32(b)
	n := int(h &^ endBit)
	if n > maxFrame {
		return nil, b, false, false, errors.New("a frame is too long")
	}
	if len(b) < head+n {
		return nil, b, false, false, nil
	}
	return b[head : head+n], b[head+n:], h&endBit != 0, true, nil
}
