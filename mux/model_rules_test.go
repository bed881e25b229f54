package mux

import "fmt"

// The model of a slot's uses. A lane is what the layers below make of it: a FIFO each way that loses nothing. What is
// left out: connections, which are the pipe's, sizes, more than one slot, STOP, the loss of a link.
//
// The generation of a slot is taken to have wrapped: all uses have the same, so nothing may depend on it.

const (
	mLanes = 2
	mQueue = 4   // records on their way in one direction of a lane
	mUses  = 3   // of the index
	forged = 200 // the number in forged terms
)

// mRecord is a record of the stream `of`, which only the checks see: what the sides know is kind, number and key.
type mRecord struct {
	kind       mKind
	number, of uint8
}

type mKind uint8

const (
	mOpen mKind = iota + 1
	mData
	mComplete // an END
	mKilled   // an END
	mConsumed
	mKill
)

func (r mRecord) String() string {
	name := [...]string{mOpen: "OPEN", mData: "DATA", mComplete: "END(complete)", mKilled: "END(killed)",
		mConsumed: "CONSUMED", mKill: "KILL"}[r.kind]
	return fmt.Sprintf("%s of use %d", name, r.of)
}

// mWay is one direction of a lane.
type mWay struct {
	recs [mQueue]mRecord
	n    uint8
}

// push says whether there was room: else the step waits.
func (w *mWay) push(kind mKind, number, of uint8) bool {
	if w.n == mQueue {
		return false
	}
	w.recs[w.n] = mRecord{kind, number, of}
	w.n++
	return true
}

func (w *mWay) pop() mRecord {
	r := w.recs[0]
	copy(w.recs[:], w.recs[1:])
	w.n--
	w.recs[w.n] = mRecord{}
	return r
}

// mFaults are what may still go wrong.
type mFaults struct{ kills, loses, doubles, forges uint8 }

// mState is everything. It is comparable, so that a search knows what it has seen.
type mState struct {
	toWork, toFront [mLanes]mWay

	// The frontend's slot, and the newest use.
	number, lane, front uint8
	killDue             bool
	credit              uint8 // 1: CONSUMED is due, 2: it was sent

	// Copies of each use's request that are on their way, and the lane that its terms name.
	requests, terms [mUses + 1]uint8

	// The worker's index: the last number seen, and the stream that is open.
	last, open, of, workLane, written uint8
	ended                             [mUses + 1]bool // an END of the use is in the string; only the checks see it

	faults mFaults
}

// States of the frontend's slot; the zero value is free.
const (
	mMinted = iota + 1
	mLive
	mClosing
)

// over says whether all uses have come to their end.
func (s *mState) over() bool { return s.front == 0 && s.number == mUses && s.open == 0 }

// mRules switches single rules off; the zero value is the protocol.
type mRules struct {
	consumedBySlot     bool // CONSUMED has no number
	freeAtKill         bool // a slot is free once KILL is sent
	endFirst           bool // the last DATA may come after END
	earlyKillIgnored   bool // a KILL of a number that was not seen gets no END
	earlyKillForgotten bool // it does not become the last number
	lowerRuns          bool // a request runs whatever the last number is
	noKeyAtWorker      bool // the worker runs terms without a right key
	noKeyAtFront       bool // the frontend takes DATA before a right OPEN
}

// runs is a request, or forged terms, at the worker.
func (q *mRules) runs(s *mState, number, of, lane uint8) (wrong string) {
	switch {
	case s.open != 0 && number > s.last:
		return "a request came while a lower one is open"
	case s.open != 0 || number <= s.last && !q.lowerRuns:
		return "" // refused
	case number < forged && s.ended[number]:
		return "a request runs after its END"
	}
	s.last, s.open, s.of, s.workLane, s.written = max(s.last, number), number, of, lane, 0
	return ""
}

// end puts an END into the string. false: there is no room.
func (s *mState) end(kind mKind, lane, number, of uint8) bool {
	if number < forged {
		s.ended[number] = true
	}
	return s.toFront[lane].push(kind, number, of)
}

// workReads is what the worker does with a record. ok is false when the answer has no room.
func (q *mRules) workReads(s *mState, lane uint8, r mRecord) (ok bool, wrong string) {
	if r.kind == mConsumed {
		if s.open != 0 && lane == s.workLane && (r.number == s.open || q.consumedBySlot) && r.of != s.of {
			wrong = fmt.Sprintf("CONSUMED of use %d counts for use %d", r.of, s.of)
		}
		return true, wrong
	}
	switch {
	case r.number > s.last && s.open != 0:
		return true, "KILL of a number while a lower one is open: the worker ends the link of an honest frontend"
	case r.number > s.last:
		if !q.earlyKillForgotten {
			s.last = r.number
		}
		return q.earlyKillIgnored || s.end(mKilled, lane, r.number, r.of), ""
	case r.number == s.open:
		s.open = 0
		return s.end(mKilled, s.workLane, r.number, r.of), ""
	}
	return true, "" // its END is in the string
}

// frontReads is what the frontend does with a record.
func (q *mRules) frontReads(s *mState, lane uint8, r mRecord) (wrong string) {
	if s.front == 0 || lane != s.lane {
		return ""
	}
	switch r.kind {
	case mOpen:
		if s.front == mMinted && r.number == s.number && r.of == s.number { // the key says of whom it is
			s.front = mLive
		}
	case mData:
		if s.front == mLive || s.front == mMinted && q.noKeyAtFront {
			if r.of != s.number {
				return fmt.Sprintf("a record of use %d is delivered to use %d", r.of, s.number)
			}
			s.credit = 1
		}
	case mComplete, mKilled:
		switch {
		case r.number != s.number:
			return ""
		case r.kind == mComplete && s.front == mLive && s.credit == 0:
			return "an answer looks complete, with a record missing"
		}
		s.front, s.credit, s.killDue = 0, 0, false
	}
	return ""
}
