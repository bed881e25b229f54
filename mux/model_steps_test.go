package mux

import "fmt"

// mStep is what can happen next.
type mStep struct {
	name  string
	to    mState
	wrong string // the promise that it breaks
}

// steps lists everything that can happen in a state.
func (q *mRules) steps(s mState, out []mStep) []mStep {
	out = q.frontSteps(s, out)
	out = q.requestSteps(s, out)
	out = q.workSteps(s, out)
	for lane := range uint8(mLanes) {
		if s.toFront[lane].n > 0 {
			t := s
			r := t.toFront[lane].pop()
			wrong := q.frontReads(&t, lane, r)
			out = append(out, mStep{fmt.Sprintf("frontend reads %v on lane %d", r, lane), t, wrong})
		}
		if s.toWork[lane].n > 0 {
			t := s
			r := t.toWork[lane].pop()
			if ok, wrong := q.workReads(&t, lane, r); ok {
				out = append(out, mStep{fmt.Sprintf("worker reads %v on lane %d", r, lane), t, wrong})
			}
		}
	}
	return out
}

func (q *mRules) frontSteps(s mState, out []mStep) []mStep {
	if s.front == 0 && s.number < mUses && !s.killDue {
		for lane := range uint8(mLanes) {
			t := s
			t.number++
			t.front, t.lane, t.credit = mMinted, lane, 0
			t.requests[t.number], t.terms[t.number] = 1, lane
			out = append(out, mStep{fmt.Sprintf("frontend mints use %d on lane %d", t.number, lane), t, ""})
		}
	}
	if s.front == mLive && s.credit == 1 {
		t := s
		if t.credit = 2; t.toWork[t.lane].push(mConsumed, t.number, t.number) {
			out = append(out, mStep{fmt.Sprintf("frontend sends CONSUMED of use %d", t.number), t, ""})
		}
	}
	// Giving up a request that was lost is always possible: time bounds see to it.
	lost := s.front == mMinted && s.requests[s.number] == 0
	if (s.front == mMinted || s.front == mLive) && (s.faults.kills > 0 || lost) {
		t := s
		if t.faults.kills > 0 {
			t.faults.kills--
		}
		t.front, t.killDue = mClosing, true
		out = append(out, mStep{fmt.Sprintf("frontend gives use %d up", t.number), t, ""})
	}
	if s.killDue {
		t := s
		t.killDue = false
		if q.freeAtKill {
			t.front = 0
		}
		if t.toWork[t.lane].push(mKill, t.number, t.number) {
			out = append(out, mStep{fmt.Sprintf("frontend sends KILL of use %d", t.number), t, ""})
		}
	}
	return out
}

func (q *mRules) requestSteps(s mState, out []mStep) []mStep {
	for use := uint8(1); use <= mUses; use++ {
		if s.requests[use] == 0 {
			continue
		}
		t := s
		t.requests[use]--
		wrong := q.runs(&t, use, use, t.terms[use])
		out = append(out, mStep{fmt.Sprintf("the request of use %d comes", use), t, wrong})
		if s.faults.loses > 0 {
			t = s
			t.faults.loses--
			t.requests[use]--
			out = append(out, mStep{fmt.Sprintf("the request of use %d is lost", use), t, ""})
		}
		if s.faults.doubles > 0 {
			t = s
			t.faults.doubles--
			t.requests[use]++
			out = append(out, mStep{fmt.Sprintf("the request of use %d is doubled", use), t, ""})
		}
	}
	if s.faults.forges > 0 {
		t := s
		t.faults.forges--
		if q.noKeyAtWorker && t.open == 0 {
			_ = q.runs(&t, forged, forged, 0)
		}
		out = append(out, mStep{"forged terms come", t, ""})
	}
	return out
}

// workSteps is the engine: OPEN, DATA, END.
func (q *mRules) workSteps(s mState, out []mStep) []mStep {
	if s.open == 0 {
		return out
	}
	t := s
	way := &t.toFront[s.workLane]
	name, ok := "", false
	switch s.written {
	case 0:
		name, ok = "OPEN", way.push(mOpen, s.open, s.of)
	case 1:
		name, ok = "DATA", way.push(mData, 0, s.of)
	default:
		name, ok = "END", t.end(mComplete, s.workLane, s.open, s.of)
		t.open = 0
	}
	t.written++
	if ok {
		out = append(out, mStep{fmt.Sprintf("worker writes %s of use %d", name, s.of), t, ""})
	}
	if q.endFirst && s.written == 1 {
		t = s
		t.open = 0
		if t.end(mComplete, s.workLane, s.open, s.of) && t.toFront[s.workLane].push(mData, 0, s.of) {
			out = append(out, mStep{fmt.Sprintf("worker writes END before DATA of use %d", s.of), t, ""})
		}
	}
	return out
}
