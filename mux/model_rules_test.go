package mux

import "fmt"

// The model is one slot index that is used twice, over up to three connections of which at most two are up at a time. Its steps
// are the rules of docs/wire.md 5 and 7 and what may go wrong: a request that comes at any time, twice or never; a connection
// that loses any suffix of what is on its way; a death that the sides notice at different times; KILL at any time; the end of
// a hold. Records are units: OPEN, DATA.., END. Sizes, several streams, HELLO, STOP and the loss of a link are left out.
//
// CONSUMED carries no number. The model takes it for the use that it was written for: only the slot's generation tells that.

const (
	mLanes  = 3
	mQueue  = 4 // records on their way in one direction of a connection
	mWindow = 2 // units; CONSUMED is due at half
)

// mUnits is how many units the first and the second use have.
var mUnits = [3]uint8{0, 4, 3}

// Kinds of records in the model.
const (
	mData     = iota + 1 // a: offset
	mEnd                 // a: length of the string, b: type
	mConsumed            // a: offset
	mKill
	mResume // a: received, b: consumed
)

// Types of ends in the model.
const (
	mNone = iota
	mComplete
	mKilled
	mLost
)

// mRecord is kind, number, a, b and move in 3, 2, 3, 3 and 2 bits.
type mRecord uint16

func mRec(kind, number, a, b, move uint8) mRecord {
	return mRecord(kind) | mRecord(number)<<3 | mRecord(a)<<5 | mRecord(b)<<8 | mRecord(move&3)<<11
}

func (r mRecord) kind() uint8   { return uint8(r & 7) }
func (r mRecord) number() uint8 { return uint8(r >> 3 & 3) }
func (r mRecord) a() uint8      { return uint8(r >> 5 & 7) }
func (r mRecord) b() uint8      { return uint8(r >> 8 & 7) }
func (r mRecord) move() uint8   { return uint8(r >> 11 & 3) }

func (r mRecord) String() string {
	name := [...]string{"", "DATA", "END", "CONSUMED", "KILL", "RESUME"}[r.kind()]
	return fmt.Sprintf("%s(use %d, %d, %d, move %d)", name, r.number(), r.a(), r.b(), r.move())
}

// mPipe is one direction of a connection.
type mPipe struct {
	recs [mQueue]mRecord
	n    uint8
}

func (p *mPipe) pop() mRecord {
	r := p.recs[0]
	copy(p.recs[:], p.recs[1:])
	p.n--
	p.recs[p.n] = 0
	return r
}

// mLane is one connection.
type mLane struct {
	used, frontUp, workUp, cut bool
	toWork, toFront            mPipe
}

// States of the frontend's slot, of a request, and of the worker's slot.
const (
	fNone = iota
	fMinted
	fLive
	fClosing
	fFree

	rNone = iota - 5
	rSent
	rCame
	rNever // lost or refused

	wUnseen = iota - 9
	wEarly
	wOpen
	wEnded
	wClosed
)

// mState is everything. It is comparable, so that a search knows what it has seen.
type mState struct {
	lanes [mLanes]mLane

	number, front, received, consumed, reported, move uint8
	lane                                              int8
	end                                               uint8
	owed                                              uint8 // a use whose END was read and whose CONSUMED(end) or KILL may not have arrived
	owedLane                                          int8

	request [3]uint8
	terms   [3]int8 // the lane that the terms name
	again   uint8   // number of a request that will come a second time

	wNumber, work, tail, cursor, high, base, wMove uint8
	wLane, endLane                                 int8

	cuts, kills, drops, holds uint8 // what may still go wrong
}

// mRules switches single rules off; the zero value is the protocol.
type mRules struct {
	resumeConsumed    bool // RESUME goes on from what was consumed, not from what was received
	lateBytes         bool // what a lane brings after its streams were moved is taken
	noMove            bool // RESUME has no move counter
	noConsumedAgain   bool // a CONSUMED that died with its lane is not repeated
	noKillAgain       bool // nor is a KILL
	endNotKept        bool // the worker forgets a stream when its END is written
	freeAtKill        bool // a slot is free at KILL, not at END
	noResumeMinted    bool // streams without a record are not resumed
	noEarly           bool // RESUME before the request is answered by END
	noEndAgain        bool // a CONSUMED(end) that died with its lane is not made good by KILL
	consumedAnyLane   bool // CONSUMED counts from a lane that the stream has left, and that lane stays open
	answerOnOldLane   bool // the END that answers KILL goes out on the stream's lane
	noKey             bool // OPEN has no key, and DATA is taken before it
	generationWrapped bool // no mutant: the generation of both uses is the same

	cuts, kills, drops, holds, twice uint8
}

func (q *mRules) begin() (s mState) {
	s.lane, s.wLane, s.endLane, s.owedLane = -1, -1, -1, -1
	s.lanes[0] = mLane{used: true, frontUp: true, workUp: true}
	s.cuts, s.kills, s.drops, s.holds = q.cuts, q.kills, q.drops, q.holds
	return s
}

// toWork and toFront write a record to a lane; false says that the queue is full.
func (s *mState) toWork(lane int8, r mRecord) bool {
	l := &s.lanes[lane]
	return l.cut || l.toWork.push(r)
}

func (s *mState) toFront(lane int8, r mRecord) bool {
	l := &s.lanes[lane]
	return l.cut || l.toFront.push(r)
}

func (p *mPipe) push(r mRecord) bool {
	if p.n == mQueue {
		return false
	}
	p.recs[p.n] = r
	p.n++
	return true
}

// upLane is the lane that a frontend's stream is placed on.
func (s *mState) upLane() int8 {
	for i := range s.lanes {
		if s.lanes[i].used && s.lanes[i].frontUp {
			return int8(i)
		}
	}
	return -1
}

func (s *mState) holdsSlot() bool {
	return s.front == fMinted || s.front == fLive || s.front == fClosing
}

// attach is a request at the worker; it says whether the worker takes it.
func (s *mState) attach(n uint8, lane int8) (taken bool, wrong string) {
	switch {
	case n < s.wNumber, n == s.wNumber && s.work != wEarly:
		return false, ""
	case n == s.wNumber:
		lane = s.wLane
	case s.work == wOpen:
		return false, "an open stream is replaced"
	default:
		s.wMove = 0
	}
	s.wNumber, s.work, s.wLane, s.endLane = n, wOpen, lane, -1
	s.tail, s.cursor, s.high, s.base = 0, 0, 0, 0
	return true, ""
}

// carrier begins an entry for a request that the worker has not seen.
func (s *mState) carrier(n uint8, state uint8, lane int8, move uint8) string {
	wrong := ""
	if s.work == wOpen {
		wrong = "an open stream is replaced"
	}
	s.wNumber, s.work, s.wLane, s.wMove, s.endLane = n, state, lane, move, -1
	s.tail, s.cursor, s.high, s.base = 0, 0, 0, 0
	return wrong
}

// workRead is the worker's side of docs/wire.md 5, "The worker's slot". ok is false when an answer finds its queue full.
func (q *mRules) workRead(s *mState, lane int8, r mRecord) (ok bool, wrong string) {
	n := r.number()
	if n < s.wNumber {
		return true, ""
	}
	switch r.kind() {
	case mConsumed:
		if n != s.wNumber || s.work != wOpen && s.work != wEnded || s.wLane != lane && !q.consumedAnyLane {
			return true, ""
		}
		if r.a() < s.base || r.a() > s.cursor {
			return true, "CONSUMED goes back, or beyond what was sent"
		}
		s.consumedTo(r.a())
	case mKill:
		if n > s.wNumber {
			wrong = s.carrier(n, wClosed, lane, 0)
		}
		on := lane
		if q.answerOnOldLane && s.wLane >= 0 {
			on = s.wLane
		}
		s.work = wClosed
		if s.endLane != on {
			s.endLane = on
			return s.toFront(on, mRec(mEnd, n, 0, mKilled, 0)), wrong
		}
	case mResume:
		if n > s.wNumber {
			if r.a() == 0 && !q.noEarly {
				return true, s.carrier(n, wEarly, lane, r.move())
			}
			if q.noEarly {
				return s.toFront(lane, mRec(mEnd, n, 0, mLost, 0)), ""
			}
			wrong = s.carrier(n, wClosed, lane, 0)
		}
		switch {
		case s.work == wClosed:
			s.endLane = lane
			return s.toFront(lane, mRec(mEnd, n, 0, mLost, 0)), wrong
		case r.move() <= s.wMove && !q.noMove:
			return true, wrong
		case s.work != wEarly && (r.b() < s.base || r.a() > s.high):
			if q.noMove {
				return true, wrong
			}
			return true, "RESUME of what is not kept"
		}
		if old := s.wLane; old >= 0 && old != lane && s.lanes[old].workUp && !q.consumedAnyLane { // its streams were moved: it is dead for the frontend
			l := &s.lanes[old]
			l.workUp, l.cut, l.toWork = false, true, mPipe{}
		}
		s.wLane, s.wMove = lane, r.move()
		if s.work != wEarly {
			s.cursor = r.a()
			if !q.noConsumedAgain {
				s.consumedTo(r.b())
			}
		}
	}
	return true, wrong
}

func (s *mState) consumedTo(offset uint8) {
	s.base = offset
	if s.work == wEnded && offset == s.tail {
		s.work = wClosed
	}
}

// frontRead is docs/wire.md 5, "The frontend's slot".
func (q *mRules) frontRead(s *mState, lane int8, r mRecord) (ok bool, wrong string) {
	mine := r.number() == s.number
	if !s.holdsSlot() || !mine && !q.generationWrapped || s.lane != lane && !q.lateBytes {
		return true, ""
	}
	switch r.kind() {
	case mData:
		switch {
		case s.front == fClosing:
		case r.a() == 0 && !mine && !q.noKey: // OPEN with another key
		case r.a() > 0 && s.front == fMinted && !q.noKey && !q.lateBytes: // DATA before OPEN
		case !mine:
			return true, "a record of another request is delivered"
		case r.a() != s.received:
			return true, "a record twice, or a gap"
		default:
			s.received++
			s.front = fLive
		}
	case mEnd:
		switch {
		case !mine: // its number says so
		case s.front == fClosing:
			s.front = fFree
			s.owed, s.owedLane = s.number, lane
		default:
			s.end = r.b()
			s.front = fFree
			switch {
			case s.end == mComplete && s.received != r.a()-1:
				return true, "complete, with records missing"
			case s.end == mLost && s.holds == q.holds: // no hold has ended
				return true, "lost, though worker and link are there"
			case s.end == mComplete:
				s.owed, s.owedLane = s.number, lane
				return s.toWork(lane, mRec(mConsumed, r.number(), r.a(), 0, 0)), ""
			}
		}
	}
	return true, ""
}
