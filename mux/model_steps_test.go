package mux

import "fmt"

// mStep is what can happen next.
type mStep struct {
	name  string
	fault bool // nothing forces it to happen
	to    mState
	wrong string // the rule that it breaks
}

// steps lists everything that can happen in a state.
func (q *mRules) steps(s mState, out []mStep) []mStep {
	out = q.frontSteps(s, out)
	out = q.workSteps(s, out)
	out = q.requestSteps(s, out)
	for i := range s.lanes {
		if s.lanes[i].used {
			out = q.laneSteps(s, int8(i), out)
		}
	}
	return out
}

func (q *mRules) frontSteps(s mState, out []mStep) []mStep {
	lane := s.upLane()
	if lane >= 0 && (s.front == fNone || s.front == fFree && s.number < 2) {
		t := s
		t.number++
		t.front, t.received, t.consumed, t.reported, t.move, t.lane, t.end = fMinted, 0, 0, 0, 0, lane, mNone
		t.request[t.number], t.terms[t.number] = rSent, lane
		if t.number == 1 {
			t.again = q.twice
		}
		out = append(out, mStep{fmt.Sprintf("frontend mints use %d on lane %d", t.number, lane), false, t, ""})
	}
	up := s.lane >= 0 && s.lanes[s.lane].frontUp
	if s.front == fLive && s.consumed < s.received {
		t := s
		t.consumed++
		ok := true
		if t.consumed-t.reported >= mWindow/2 && (up || q.noConsumedAgain) {
			if up {
				ok = t.toWork(t.lane, mRec(mConsumed, t.number, t.consumed, 0, 0))
			}
			t.reported = t.consumed
		}
		if ok {
			out = append(out, mStep{"frontend consumes", false, t, ""})
		}
	}
	if s.front == fMinted || s.front == fLive {
		given := s.front == fMinted && s.request[s.number] == rNever
		if given || s.kills > 0 {
			t := s
			if !given {
				t.kills--
			}
			t.end, t.front = mKilled, fClosing
			ok := !up || t.toWork(t.lane, mRec(mKill, t.number, 0, 0, 0))
			if q.freeAtKill {
				t.front = fFree
			}
			if ok {
				out = append(out, mStep{"frontend kills", !given, t, ""})
			}
		}
	}
	if s.holdsSlot() && !up && lane >= 0 && !(q.noResumeMinted && s.front == fMinted) {
		t := s
		t.lane = lane
		ok := true
		if t.front == fClosing {
			ok = q.noKillAgain || t.toWork(lane, mRec(mKill, t.number, 0, 0, 0))
		} else {
			t.move++
			from := t.received
			if q.resumeConsumed {
				from = t.consumed
			}
			ok = t.toWork(lane, mRec(mResume, t.number, from, t.consumed, t.move))
			if !q.noConsumedAgain {
				t.reported = t.consumed
			}
		}
		if ok {
			out = append(out, mStep{fmt.Sprintf("frontend moves its stream to lane %d", lane), false, t, ""})
		}
	}
	if s.owed > 0 && !s.lanes[s.owedLane].frontUp && lane >= 0 && !q.noEndAgain {
		t := s
		t.owedLane = lane
		if t.toWork(lane, mRec(mKill, t.owed, 0, 0, 0)) {
			out = append(out, mStep{fmt.Sprintf("frontend kills on lane %d what is left of use %d", lane, s.owed), false, t, ""})
		}
	}
	ups, free := 0, -1
	for i := range s.lanes {
		if s.lanes[i].used && s.lanes[i].frontUp {
			ups++
		}
		if !s.lanes[i].used && free < 0 {
			free = i
		}
	}
	if ups < 2 && free >= 0 {
		t := s
		t.lanes[free] = mLane{used: true, frontUp: true, workUp: true}
		out = append(out, mStep{fmt.Sprintf("frontend dials lane %d", free), false, t, ""})
	}
	return out
}

func (q *mRules) workSteps(s mState, out []mStep) []mStep {
	last := mUnits[s.wNumber] - 1 // the offset of END; not used where the number is 0
	if s.work == wOpen {
		switch {
		case s.tail == last:
			t := s
			t.tail++
			t.work = wEnded
			out = append(out, mStep{"worker appends END", false, t, ""})
		case s.tail-s.base < mWindow:
			t := s
			t.tail++
			out = append(out, mStep{"worker appends", false, t, ""})
		}
	}
	up := s.wLane >= 0 && s.lanes[s.wLane].workUp
	if up && (s.work == wOpen || s.work == wEnded) && s.cursor < s.tail {
		t := s
		r := mRec(mData, s.wNumber, s.cursor, 0, 0)
		if s.cursor == last {
			r = mRec(mEnd, s.wNumber, s.tail, mComplete, 0)
			t.endLane = t.wLane
			if q.endNotKept {
				t.work = wClosed
			}
		}
		t.cursor++
		t.high = max(t.high, t.cursor)
		if t.toFront(t.wLane, r) {
			out = append(out, mStep{fmt.Sprintf("worker writes %v to lane %d", r, s.wLane), false, t, ""})
		}
	}
	if s.wLane >= 0 && !up {
		if s.work == wOpen && s.holds > 0 { // of an ended one nothing but its memory depends on a hold
			t := s
			t.work = wClosed
			t.holds--
			out = append(out, mStep{"worker gives up an open stream", true, t, ""})
		}
	}
	return out
}

// requestSteps is the way of requests beside the lanes.
func (q *mRules) requestSteps(s mState, out []mStep) []mStep {
	for n := uint8(1); n <= 2; n++ {
		if s.request[n] != rSent {
			continue
		}
		t := s
		taken, wrong := t.attach(n, s.terms[n])
		t.request[n] = rCame
		if !taken {
			t.request[n] = rNever
		}
		out = append(out, mStep{fmt.Sprintf("request %d comes, taken: %t", n, taken), false, t, wrong})
		if s.drops > 0 {
			t := s
			t.drops--
			t.request[n] = rNever
			out = append(out, mStep{fmt.Sprintf("request %d is lost", n), true, t, ""})
		}
	}
	if s.again > 0 {
		t := s
		t.again = 0
		taken, wrong := t.attach(1, s.terms[1])
		if taken && t.request[1] == rSent {
			t.request[1] = rCame // the first copy will be refused, and the frontend knows that one was taken
		}
		out = append(out, mStep{fmt.Sprintf("request 1 comes again, taken: %t", taken), false, t, wrong})
	}
	return out
}

// laneSteps is reading, and what can happen to a connection.
func (q *mRules) laneSteps(s mState, lane int8, out []mStep) []mStep {
	l := &s.lanes[lane]
	if l.toFront.n > 0 && (l.frontUp || q.lateBytes && l.cut) {
		t := s
		r := t.lanes[lane].toFront.pop()
		if ok, wrong := q.frontRead(&t, lane, r); ok {
			out = append(out, mStep{fmt.Sprintf("frontend reads %v from lane %d", r, lane), false, t, wrong})
		}
	}
	if l.toWork.n > 0 && l.workUp {
		t := s
		r := t.lanes[lane].toWork.pop()
		if ok, wrong := q.workRead(&t, lane, r); ok {
			out = append(out, mStep{fmt.Sprintf("worker reads %v from lane %d", r, lane), false, t, wrong})
		}
	}
	if !l.cut {
		if s.cuts == 0 {
			return out
		}
		for side, name := range []string{"lane %d is cut", "frontend closes lane %d", "worker closes lane %d"} {
			t := s
			t.cuts--
			d := &t.lanes[lane]
			d.cut = true
			d.frontUp, d.workUp = d.frontUp && side != 1, d.workUp && side != 2
			q.deaf(d)
			out = append(out, mStep{fmt.Sprintf(name, lane), true, t, ""})
		}
		return out
	}
	// What was on its way may be lost from behind. Each side reads what still comes, until it notices.
	for _, way := range []func(*mLane) *mPipe{func(l *mLane) *mPipe { return &l.toWork }, func(l *mLane) *mPipe { return &l.toFront }} {
		if way(l).n > 0 {
			t := s
			p := way(&t.lanes[lane])
			p.n--
			p.recs[p.n] = 0
			out = append(out, mStep{fmt.Sprintf("lane %d loses a record", lane), true, t, ""})
		}
	}
	if l.frontUp {
		t := s
		t.lanes[lane].frontUp = false
		q.deaf(&t.lanes[lane])
		out = append(out, mStep{fmt.Sprintf("frontend notices the death of lane %d", lane), false, t, ""})
	}
	if l.workUp {
		t := s
		t.lanes[lane].workUp = false
		q.deaf(&t.lanes[lane])
		out = append(out, mStep{fmt.Sprintf("worker notices the death of lane %d", lane), false, t, ""})
	}
	return out
}

// deaf drops what a side that has closed a lane will not read.
func (q *mRules) deaf(l *mLane) {
	if !l.frontUp && !q.lateBytes {
		l.toFront = mPipe{}
	}
	if !l.workUp {
		l.toWork = mPipe{}
	}
}

// stuck names a state in which nothing can happen but another fault.
func (s *mState) stuck() string {
	switch s.front {
	case fFree:
		return "the worker keeps a stream for ever"
	case fClosing:
		return "a slot is closing for ever"
	}
	return "nothing can go on"
}

// done says whether both uses are over and nothing is kept.
func (s *mState) done() bool {
	return s.front == fFree && s.number == 2 && s.work != wOpen && s.work != wEnded && s.work != wEarly
}
