package planepage

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// What the pages of frontends and worker processes have in common.

func ratesSection(r Rates, s responseplane.Stats) Section {
	per := func(a, b float64) string {
		if b == 0 {
			return "-"
		}
		return strconv.FormatFloat(a/b, 'f', 1, 64)
	}
	out := Section{ID: "rates", Title: "Rates", Said: window(r), Facts: []Fact{
		{Name: "records in, a second", Value: rate(r.RecordsIn)}, {Name: "records out, a second",
			Value: rate(r.RecordsOut)},
		{Name: "bytes in, a second", Value: size(int64(r.BytesIn))}, {Name: "bytes out, a second",
			Value: size(int64(r.BytesOut))},
		{Name: "streams opened, a second", Value: rate(r.Opened)}, {Name: "streams ended, a second",
			Value: rate(r.Ended)},
		{Name: "reads, a second", Value: rate(r.Reads)}, {Name: "records a read", Value: per(r.RecordsIn, r.Reads)},
		{Name: "writes, a second", Value: rate(r.Writes)},
		{Name: "records a write", Value: per(r.RecordsOut, r.Writes)},
		{Name: "consumers woken, a second", Value: rate(r.Wakes)},
	}}
	planes := Table{Summary: "Totals by plane, lanes that died included", Open: true, Left: 1,
		Heads: []string{"plane", "records in", "records out", "bytes in", "bytes out"}}
	for _, k := range sortedKeys(s.Planes) {
		p := s.Planes[k]
		planes.Rows = append(planes.Rows, []Cell{{Text: k}, {Text: thousands(p.RecordsIn)},
			{Text: thousands(p.RecordsOut)}, {Text: size(p.BytesIn)}, {Text: size(p.BytesOut)}})
	}
	out.Tables = []Table{planes}
	return out
}

// socketKey finds the socket of a lane.
type socketKey struct {
	plane string
	port  int
}

// takeovers is how often lanes went on over another connection.
func takeovers(s *responseplane.Stats) (n uint64) {
	for _, t := range s.LaneTakeovers {
		n += t.Count
	}
	return n
}

func lanesSection(lanes []responseplane.LaneStats, sockets []transport.SocketInfo, frontend bool) Section {
	by := map[socketKey]*transport.SocketInfo{}
	for i := range sockets {
		by[socketKey{sockets[i].Plane, sockets[i].Port}] = &sockets[i]
	}
	t := Table{Summary: "Lanes, " + thousands(len(lanes)), Open: len(lanes) <= 32, Left: 3,
		Heads: []string{"process", "plane", "state", "lane", "RTT", "streams", "queue", "log", "records in",
			"records out", "bytes in", "bytes out", "drops", "MTU", "GSO/GRO", "local", "remote"}}
	lanes = slices.Clone(lanes)
	slices.SortFunc(lanes, func(a, b responseplane.LaneStats) int {
		return cmp.Or(cmp.Compare(a.PeerName, b.PeerName), slices.Compare(a.Peer[:], b.Peer[:]),
			cmp.Compare(a.Plane, b.Plane), cmp.Compare(a.Lane, b.Lane))
	})
	for i := range lanes {
		l := &lanes[i]
		drops, mtu, offload := "-", "-", "-"
		dropped := false
		if _, port, err := net.SplitHostPort(l.Local); err == nil {
			n, _ := strconv.Atoi(port)
			if s := by[socketKey{l.Plane, n}]; s != nil && isQUIC(s) {
				drops, mtu, offload, dropped = thousands(s.Drops), strconv.Itoa(s.MaxMTU), onOff(s.GSO)+"/"+
					onOff(s.GRO), s.Drops > 0
			}
		}
		state := Cell{Text: "up"}
		if !l.Up {
			state = Cell{Text: "down", Bad: true}
		}
		t.Rows = append(t.Rows, []Cell{{Text: cmp.Or(l.PeerName, l.Peer.String())}, {Text: l.Plane}, state,
			{Text: strconv.Itoa(l.Lane)}, {Text: rtt(l.RTT)},
			{Text: thousands(l.Streams)}, {Text: size(l.QueueBytes)}, {Text: size(l.LogBytes)},
			{Text: thousands(l.RecordsIn)}, {Text: thousands(l.RecordsOut)}, {Text: size(l.BytesIn)},
			{Text: size(l.BytesOut)},
			{Text: drops, Bad: dropped}, {Text: mtu}, {Text: offload}, {Text: l.Local}, {Text: l.Remote}})
	}
	said := "Queue is what waits to be written, log what is kept until the other end has it."
	if frontend {
		said += " RTT is that of the last PING. MTU is the largest UDP payload, drops are the kernel's at the lane's " +
			"own socket (quic)."
	} else {
		said += " Frontends measure RTT. MTU is the largest UDP payload, drops are the kernel's at the endpoint's " +
			"socket, which lanes share (quic)."
	}
	return Section{ID: "lanes", Title: "Lanes", Said: said, Tables: []Table{t}}
}

func isQUIC(s *transport.SocketInfo) bool { return strings.HasPrefix(s.Plane, transport.PlaneQUIC) }

func socketsSection(sockets []transport.SocketInfo) Section {
	t := Table{Left: 2, Heads: []string{"plane", "role", "lane", "port", "receive asked", "granted", "send asked",
		"granted", "GSO/GRO", "drops", "packets in", "packets out"}}
	clamped := 0
	// The kernel doubles what was asked; less than that is less than asked.
	short := func(asked, granted int) bool { return asked > 0 && granted > 0 && granted < 2*asked }
	asked := func(n int) string {
		if n == 0 {
			return "kernel"
		}
		return size(n)
	}
	granted := func(n int) string {
		if n == 0 {
			return "-"
		}
		return size(n)
	}
	for i := range sockets {
		s := &sockets[i]
		recv, send := short(s.RecvAsked, s.RecvGranted), short(s.SendAsked, s.SendGranted)
		if recv || send {
			clamped++
		}
		lane, offload, drops := "-", "-", "-"
		in, out := "-", "-"
		if s.Lane >= 0 {
			lane = strconv.Itoa(s.Lane)
		}
		if isQUIC(s) {
			offload, drops, in, out = onOff(s.GSO)+"/"+onOff(s.GRO), thousands(s.Drops), thousands(s.PacketsIn),
				thousands(s.PacketsOut)
		}
		t.Rows = append(t.Rows, []Cell{{Text: s.Plane}, {Text: s.Role}, {Text: lane}, {Text: strconv.Itoa(s.Port)},
			{Text: asked(s.RecvAsked)}, {Text: granted(s.RecvGranted), Bad: recv},
			{Text: asked(s.SendAsked)}, {Text: granted(s.SendGranted), Bad: send}, {Text: offload},
			{Text: drops, Bad: s.Drops > 0}, {Text: in}, {Text: out}})
	}
	t.Summary, t.Open = "Sockets, "+thousands(len(sockets)), len(sockets) <= 32
	said := "The kernel doubles what was asked. No socket got less than that."
	if clamped > 0 {
		said = fmt.Sprintf("The kernel doubles what was asked; %s got less than that. Raise net.core.rmem_max and "+
			"net.core.wmem_max.", count(clamped, "socket", "sockets"))
	}
	return Section{ID: "sockets", Title: "Sockets and their buffers", Said: said, Tables: []Table{t}}
}

func settingsSection(settings []planeflags.Setting, config map[string]string, facts []Fact) Section {
	t := Table{Summary: "Transport settings, as asked for and in force", Open: true, Left: 3,
		Heads: []string{"setting", "asked", "in force"}}
	for _, s := range settings {
		t.Rows = append(t.Rows, []Cell{{Text: s.Name}, {Text: orDash(s.Asked)}, {Text: orDash(s.InForce)}})
	}
	all := Table{Summary: "All flags in force, " + thousands(len(config)), Left: 2, Heads: []string{"flag", "value"}}
	for _, k := range sortedKeys(config) {
		all.Rows = append(all.Rows, []Cell{{Text: k}, {Text: orDash(config[k])}})
	}
	return Section{ID: "settings", Title: "Settings in force", Facts: facts, Tables: []Table{t, all}}
}
