package pipe

import (
	"fmt"
	"strings"
	"testing"
)

// The model is a lane in small: both sides, three connections, two units each way (a unit is a record), a log of one
// unit, cuts that lose any end of what is on its way, one planned takeover. Whatever takes time is in two steps: to
// read and to handle, to take a unit for the connection and to hand it over, to stop the old connection and to
// answer. All orders of all steps are searched, and what must hold in each state is: a unit is handled once, in
// order; an honest peer is never refused; a lane with a connection never stands still before all is handled.
const (
	modelConns = 3
	modelUnits = 2
	modelQueue = 2 // messages on their way, each way
	modelLog   = 1 // units
)

type message struct {
	kind     messageKind
	unit     uint8 // of mUnit; of mHello the serial
	received uint8
	_        uint8
}

type messageKind uint8

const (
	mUnit messageKind = 1 + iota
	mAck
	mHello
	mAnswer
)

// wireQueue is what is on its way in one direction.
type wireQueue struct {
	n   uint8
	all [modelQueue]message
}

func (q *wireQueue) put(m message) bool {
	if q.n == modelQueue {
		return false
	}
	q.all[q.n] = m
	q.n++
	return true
}

func (q *wireQueue) get() message {
	m := q.all[0]
	copy(q.all[:], q.all[1:])
	q.cutTo(q.n - 1)
	return m
}

// cutTo loses the end.
func (q *wireQueue) cutTo(n uint8) {
	clear(q.all[n:])
	q.n = n
}

// modelConn is a connection; sides and directions are front and worker, from whom it comes.
type modelConn struct {
	there, cut bool
	open       [2]bool // that side has not closed it
	from       [2]wireQueue
}

// modelSide is a pipe. Connections are named by 1 + index, 0 = none.
type modelSide struct {
	conn                  uint8
	up                    bool  // its HELLOs are through: units may be sent
	received, named       uint8 // of the peer's units, and what it was told
	cursor, sealed, acked uint8
	reading               uint8 // the unit that was read and not yet handled
	readingFrom           uint8
	writing               uint8 // the unit that was taken and not yet handed to the connection
	writingTo             uint8
	returning             bool // the connection has it, the call is still to return
}

type modelState struct {
	conns  [modelConns]modelConn
	sides  [2]modelSide
	dialed uint8
	serial uint8 // the highest that the worker has accepted
	// A takeover at the worker: the connection, received of its HELLO, and the worker's received when it was read.
	taking, takingReceived, takingNoted uint8
	cuts, plans, holds                  uint8 // that are left
	forgot, lost                        bool
}

// leftOut is a rule that is not obeyed, or with hold a thing that may happen too.
type leftOut struct {
	joinAtFront, joinAtWorker, stopBeforeNote, serial, cursorBefore, sealBefore, answerReceived, onlyCurrent,
	ackBesideLog, unknown bool
	hold bool
}

func TestModel(t *testing.T) {
	for _, c := range []struct {
		name   string
		out    leftOut
		breaks string // what goes wrong, "" = nothing
	}{
		{"all rules", leftOut{}, ""},
		{"the worker forgets the lane, which is then unknown", leftOut{hold: true}, ""},
		{"frontend notes received before its reader has returned", leftOut{joinAtFront: true}, "refused"},
		{"worker answers before its reader has returned", leftOut{joinAtWorker: true}, "refused"},
		{"worker notes received before it stops the old connection", leftOut{stopBeforeNote: true}, "handles"},
		{"worker takes a lower serial", leftOut{serial: true}, "refused"},
		{"the cursor moves when a write returns", leftOut{cursorBefore: true}, "stands still"},
		{"sealed when the write returns", leftOut{sealBefore: true}, "refused"},
		{"the answer says what was named last, not what was received", leftOut{answerReceived: true}, "handles"},
		{"the death of an old connection ends the current one", leftOut{onlyCurrent: true}, "stands still"},
		{"ACK waits for room in the log", leftOut{ackBesideLog: true}, "stands still"},
		{"an unknown lane with received above 0 is made anew", leftOut{hold: true, unknown: true}, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			states, trace := searchModel(t, c.out)
			t.Logf("%d states", states)
			switch {
			case c.breaks == "" && trace != nil:
				t.Errorf("the rules do not hold:\n%s", strings.Join(trace, "\n"))
			case c.breaks != "" && trace == nil:
				t.Error("nothing goes wrong without the rule")
			case c.breaks != "" && !strings.Contains(trace[len(trace)-1], c.breaks):
				t.Errorf("it does not go wrong as expected (%s):\n%s", c.breaks, strings.Join(trace, "\n"))
			}
		})
	}
}

// searchModel visits all states, nearest first, and returns how many there are, or the way to the first that breaks.
func searchModel(t *testing.T, out leftOut) (states int, trace []string) {
	type step struct {
		from modelState
		what string
	}
	first := modelState{cuts: 2, plans: 1}
	if out.hold {
		first.holds = 1
	}
	seen := map[modelState]step{first: {}}
	todo := []modelState{first}
	fail := func(s modelState, what string) []string {
		for trace = []string{what}; s != first; s = seen[s].from {
			trace = append([]string{seen[s].what}, trace...)
		}
		return trace
	}
	for ; len(todo) > 0; todo = todo[1:] {
		s := todo[0]
		m := modelStep{modelState: s, out: out, old: &s}
		m.all()
		if m.broken != "" {
			return len(seen), fail(s, m.broken)
		}
		// a lane that has no connection left is the model's end
		if len(m.next) == 0 && !s.lost && !s.done() && s.sides[front].up {
			return len(seen), fail(s, "it stands still")
		}
		for i, n := range m.next {
			n.forget()
			if _, ok := seen[n]; !ok {
				seen[n] = step{s, m.what[i]}
				todo = append(todo, n)
			}
		}
		if len(seen) > 1_000_000 {
			t.Fatal("the model has become too large")
		}
	}
	return len(seen), nil
}

func (s *modelState) done() bool {
	return s.sides[front].received == modelUnits && s.sides[worker].received == modelUnits
}

// forget drops what nobody will see, so that states that differ in nothing else are one.
func (s *modelState) forget() {
	for i := range s.conns {
		c := &s.conns[i]
		for side := range 2 {
			if c.there && !c.open[side] {
				c.from[1-side] = wireQueue{}
			}
		}
		c.cut = c.cut || c.there && !c.open[front] && !c.open[worker]
	}
}

func sideName(side int) string { return [...]string{"frontend", "worker"}[side] }

func (m *modelStep) emit(format string, args ...any) {
	m.next, m.what = append(m.next, m.modelState), append(m.what, fmt.Sprintf(format, args...))
	m.modelState = *m.old
}
