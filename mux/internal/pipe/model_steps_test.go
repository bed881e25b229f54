package pipe

import "fmt"

// modelStep finds what may happen next in a state. Each step changes modelState, and emit takes it and sets it back.
type modelStep struct {
	modelState
	old    *modelState
	out    leftOut
	next   []modelState
	what   []string
	broken string
}

func (m *modelStep) all() {
	if m.lost {
		return
	}
	m.dial()
	for i := range m.conns {
		if m.conns[i].there {
			m.cut(i)
			for side := range 2 {
				m.die(side, i)
				m.read(side, i)
			}
		}
	}
	for side := range 2 {
		m.handle(side)
		m.take(side)
		m.hand(side)
		m.ack(side)
	}
	m.hold()
	m.answer()
}

// stop is Pipe.Stop: what was read is given up, which is the harder choice, for all that is handled was received.
func (m *modelStep) stop(side int) {
	s := &m.sides[side]
	if s.conn == 0 {
		return
	}
	m.conns[s.conn-1].open[side] = false
	s.conn, s.up = 0, false
	if side == front && !m.out.joinAtFront || side == worker && !m.out.joinAtWorker {
		s.reading, s.readingFrom = 0, 0
	}
	if !m.out.cursorBefore {
		s.writing, s.writingTo, s.returning = 0, 0, false
	}
}

// start is Pipe.Start's part that concerns the log.
func (m *modelStep) start(side int, received uint8) {
	s := &m.sides[side]
	if received < s.acked || received > s.sealed {
		m.fail("an honest peer is refused: it received %d, %d were acknowledged and %d sealed", received, s.acked,
			s.sealed)
		return
	}
	s.acked, s.cursor = received, received
}

func (m *modelStep) fail(format string, args ...any) {
	if m.broken == "" {
		m.broken = fmt.Sprintf(format, args...)
	}
}

// dial: the frontend has no connection, replaces one on purpose, or gives up one that is not answered.
func (m *modelStep) dial() {
	f := &m.sides[front]
	switch {
	case m.dialed == modelConns:
		return
	case f.conn == 0:
	case f.up && m.plans > 0:
		m.plans--
	case !f.up && m.cuts > 0:
		m.cuts--
	default:
		return
	}
	m.stop(front)
	m.dialed++
	c := &m.conns[m.dialed-1]
	*c = modelConn{there: true, open: [2]bool{true, true}}
	c.from[front].put(message{kind: mHello, unit: m.dialed, received: f.received})
	f.conn = m.dialed
	m.emit("frontend dials %d and has received %d", m.dialed, f.received)
}

// cut loses any end of both directions.
func (m *modelStep) cut(i int) {
	c := &m.conns[i]
	if c.cut || m.cuts == 0 || !c.open[front] && !c.open[worker] {
		return
	}
	for a := range c.from[front].n + 1 {
		for b := range c.from[worker].n + 1 {
			m.cuts--
			c.cut = true
			c.from[front].cutTo(a)
			c.from[worker].cutTo(b)
			m.emit("%d is cut", i+1)
		}
	}
}

// die: a side finds that its connection is dead, having read it to the end, or by silence without.
func (m *modelStep) die(side, i int) {
	c, s := &m.conns[i], &m.sides[side]
	if !c.open[side] {
		return
	}
	current := int(s.conn) == i+1
	end := c.from[1-side].n == 0 && int(s.readingFrom) != i+1 && (c.cut || !c.open[1-side])
	if current && (c.cut || end) {
		m.stop(side)
		m.emit("%s finds %d dead", sideName(side), i+1)
	}
	if m.out.onlyCurrent && side == worker && !current && s.conn != 0 && !c.open[front] {
		c.open[worker] = false
		s.conn, s.up = 0, false
		m.emit("worker finds the old connection %d dead", i+1)
	}
}

// read takes the next message of a connection.
func (m *modelStep) read(side, i int) {
	c, s := &m.conns[i], &m.sides[side]
	in := &c.from[1-side]
	if !c.open[side] || in.n == 0 || s.reading != 0 && in.all[0].kind != mHello {
		return
	}
	current := int(s.conn) == i+1
	switch msg := in.all[0]; msg.kind {
	case mHello:
		m.readHello(i)
	case mAnswer:
		if current && !s.up {
			in.get()
			m.start(front, msg.received)
			s.up = true
			m.emit("frontend reads the answer on %d: %d received", i+1, msg.received)
		}
	case mAck:
		if current {
			in.get()
			if msg.received > s.sealed || msg.received > s.cursor {
				m.fail("an honest peer is refused: ACK of %d, %d were sealed and %d sent", msg.received, s.sealed,
					s.cursor)
			}
			s.acked = max(s.acked, msg.received)
			m.emit("%s reads ACK %d", sideName(side), msg.received)
		}
	case mUnit:
		if current || side == front && m.out.joinAtFront || side == worker && m.out.joinAtWorker {
			in.get()
			s.reading, s.readingFrom = msg.unit, uint8(i+1)
			m.emit("%s reads unit %d from %d", sideName(side), msg.unit, i+1)
		}
	}
}

func (m *modelStep) readHello(i int) {
	if m.taking != 0 { // takeovers of a lane run one at a time
		return
	}
	hello := m.conns[i].from[front].get()
	switch {
	case m.forgot && !m.out.unknown:
		m.lost = true
		m.emit("worker does not know the lane")
		return
	case hello.unit <= m.serial && !m.out.serial:
		m.conns[i].open[worker] = false
		m.emit("worker refuses serial %d", hello.unit)
		return
	}
	m.serial = hello.unit
	m.taking, m.takingReceived, m.takingNoted = uint8(i+1), hello.received, m.sides[worker].received
	if !m.out.stopBeforeNote {
		m.stop(worker)
	}
	m.emit("worker reads HELLO of %d: %d received", hello.unit, hello.received)
}

// answer is the second half of the worker's takeover.
func (m *modelStep) answer() {
	if m.taking == 0 || m.sides[worker].reading != 0 && !m.out.joinAtWorker {
		return
	}
	s, c := &m.sides[worker], &m.conns[m.taking-1]
	if m.out.stopBeforeNote {
		m.stop(worker)
	}
	received := s.received
	switch {
	case m.out.joinAtWorker || m.out.stopBeforeNote:
		received = m.takingNoted
	case m.out.answerReceived:
		received = s.named
	}
	m.start(worker, m.takingReceived)
	s.conn, s.up, s.named = m.taking, true, s.received
	if c.open[front] && !c.cut && !c.from[worker].put(message{kind: mAnswer, received: received}) {
		m.modelState = *m.old
		return
	}
	m.taking = 0
	m.emit("worker answers: %d received", received)
}

func (m *modelStep) handle(side int) {
	s := &m.sides[side]
	if s.reading == 0 {
		return
	}
	unit := s.reading
	if unit != s.received+1 {
		m.fail("%s handles unit %d after %d", sideName(side), unit, s.received)
	}
	s.received, s.reading, s.readingFrom = unit, 0, 0
	m.emit("%s handles unit %d", sideName(side), unit)
}

// take seals the next unit, or takes one of the log again.
func (m *modelStep) take(side int) {
	s := &m.sides[side]
	full := s.cursor == s.sealed && s.sealed-s.acked >= modelLog
	if !s.up || s.writing != 0 || s.cursor == modelUnits || full {
		return
	}
	unit := s.cursor + 1
	s.writing, s.writingTo = unit, s.conn
	if !m.out.sealBefore {
		s.sealed = max(s.sealed, unit)
	}
	if !m.out.cursorBefore {
		s.cursor = unit
	}
	m.emit("%s takes unit %d for %d", sideName(side), unit, s.conn)
}

// hand gives the connection what was taken. Where a rule makes a difference the call returns in a step of its own.
func (m *modelStep) hand(side int) {
	s := &m.sides[side]
	if s.writing == 0 {
		return
	}
	c := &m.conns[s.writingTo-1]
	if !s.returning && c.open[side] && !c.cut && !c.from[side].put(message{kind: mUnit, unit: s.writing}) {
		return
	}
	unit := s.writing
	if m.out.sealBefore && !s.returning {
		s.returning = true
		m.emit("the connection has unit %d of the %s", unit, sideName(side))
		return
	}
	if m.out.sealBefore {
		s.sealed = max(s.sealed, unit)
	}
	if m.out.cursorBefore {
		s.cursor++
	}
	s.writing, s.writingTo, s.returning = 0, 0, false
	m.emit("%s has written unit %d", sideName(side), unit)
}

func (m *modelStep) ack(side int) {
	s := &m.sides[side]
	full := s.sealed-s.acked >= modelLog
	if !s.up || s.received <= s.named || s.writing != 0 || m.out.ackBesideLog && full {
		return
	}
	c := &m.conns[s.conn-1]
	if !c.cut && !c.from[side].put(message{kind: mAck, received: s.received}) {
		return
	}
	s.named = s.received
	m.emit("%s sends ACK %d", sideName(side), s.received)
}

// hold: the worker forgets a lane that has had no connection for too long.
func (m *modelStep) hold() {
	if m.holds == 0 || m.sides[worker].conn != 0 || m.taking != 0 || m.serial == 0 {
		return
	}
	m.holds--
	m.sides[worker], m.forgot, m.serial = modelSide{}, true, 0
	m.emit("worker forgets the lane")
}
