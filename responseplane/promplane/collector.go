package promplane

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

// Values of the label direction.
const (
	dirIn  = "in"
	dirOut = "out"
)

// New makes the collector of one Frontend or Worker. stats is its Stats method. transports are those that it was built
// with; they add what sockets and connections have counted, and may be left out. The collector holds no goroutine and
// needs no Close; register it once.
func New(stats func() responseplane.Stats, transports ...transport.Transport) prometheus.Collector {
	return &collector{d: newDescs(), stats: stats, transports: transports}
}

type collector struct {
	d          descs
	stats      func() responseplane.Stats
	transports []transport.Transport
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	d := &c.d
	for _, x := range []*prometheus.Desc{
		d.streamsOpened, d.streamsEnded, d.openStreams, d.closingSlots, d.records, d.bytes, d.planeRecords, d.fallbacks,
		d.writes, d.reads, d.wakes, d.perWrite, d.sinkCalls, d.sinkSlow, d.forgotten,
		d.links, d.lanes, d.laneQueue, d.laneRTT, d.laneStreams, d.laneDeaths, d.addresses,
		d.takeovers, d.takeoverTime, d.down, d.resent, d.log, d.logFull, d.acks, d.skipped,
		d.dropped, d.refused, d.stalls, d.committed, d.buffered,
		d.udpDatagrams, d.udpDrops, d.udpBuffers, d.libraryDrops, d.packetsLost,
		d.dials, d.dialErrors, d.accepts, d.acceptErrors,
	} {
		ch <- x
	}
}

// Collect implements prometheus.Collector. It may be called concurrently.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	out := emitter{ch}
	c.collectStreams(out, s)
	c.collectLanes(out, s)
	c.collectTransports(out)
}

func (c *collector) collectStreams(out emitter, s responseplane.Stats) {
	d := &c.d
	out.counter(d.streamsOpened, s.StreamsOpened)
	out.counters(d.streamsEnded, s.StreamsEnded)
	out.gauge(d.openStreams, s.OpenStreams)
	out.gauge(d.closingSlots, s.ClosingSlots)
	out.counter(d.records, s.RecordsIn, dirIn)
	out.counter(d.records, s.RecordsOut, dirOut)
	out.counter(d.bytes, s.BytesIn, dirIn)
	out.counter(d.bytes, s.BytesOut, dirOut)
	for _, t := range c.transports { // one that carried nothing is reported as 0
		if _, ok := s.Planes[t.Plane()]; !ok {
			out.counter(d.planeRecords, 0, t.Plane(), dirIn)
			out.counter(d.planeRecords, 0, t.Plane(), dirOut)
		}
	}
	for plane, n := range s.Planes {
		out.counter(d.planeRecords, n.RecordsIn, plane, dirIn)
		out.counter(d.planeRecords, n.RecordsOut, plane, dirOut)
	}
	for _, f := range s.Fallbacks {
		out.counter(d.fallbacks, f.Links, f.From, f.To, f.Reason)
	}

	out.counters(d.writes, s.Writes)
	out.counter(d.reads, s.Reads)
	out.counter(d.wakes, s.Wakes)
	out.perWrite(d.perWrite, s)
	out.counter(d.sinkCalls, s.SinkCalls)
	out.counter(d.sinkSlow, s.SinkSlow)
	out.counter(d.forgotten, s.ForgottenFlushes)

	out.counters(d.dropped, s.RecordsDropped)
	out.counter(d.refused, s.Refused)
	out.counter(d.stalls, s.WindowStalls)
	out.gauge(d.committed, s.CommittedBytes)
	out.gauge(d.buffered, s.BufferedBytes)
}

// laneKey names a lane in metrics. Two nodes may share a name, for a while even two lives of one process: such lanes
// are added up.
type laneKey struct{ plane, peer, lane string }

type laneSum struct {
	queue, streams int64
	rtt            float64
}

func (c *collector) collectLanes(out emitter, s responseplane.Stats) {
	d := &c.d
	out.gauge(d.links, int64(s.Links))
	out.counters(d.laneDeaths, s.LaneDeaths)
	for reason, t := range s.LaneTakeovers {
		out.counter(d.takeovers, t.Count, reason)
	}
	out.takeoverTime(d.takeoverTime, s.LaneTakeovers)
	out.seconds(d.down, s.LaneDownSeconds)
	out.counter(d.resent, s.ResentBytes)
	out.gauge(d.log, s.LogBytes)
	out.seconds(d.logFull, s.LogFullSeconds)
	out.counter(d.acks, s.AcksAlone, "alone")
	out.counter(d.acks, s.AcksAlong, "along")
	out.counter(d.skipped, s.RecordsSkipped)
	for reason, n := range s.AddressesRefused {
		out.gauge(d.addresses, int64(n), reason)
	}
	up, down := make(map[string]int64), make(map[string]int64)
	for _, t := range c.transports {
		up[t.Plane()] = 0 // a plane without a lane is a fact, too
	}
	lanes := make(map[laneKey]laneSum, len(s.Lanes))
	for _, l := range s.Lanes {
		if l.Up {
			up[l.Plane]++
		} else {
			down[l.Plane]++
		}
		peer := l.PeerName
		if peer == "" {
			peer = l.Peer.String()
		}
		k := laneKey{l.Plane, peer, strconv.Itoa(l.Lane)}
		sum := lanes[k]
		sum.queue += int64(l.QueueBytes)
		sum.streams += l.Streams
		sum.rtt = max(sum.rtt, l.RTT.Seconds())
		lanes[k] = sum
	}
	for plane, n := range up {
		out.gauge(d.lanes, n, plane, "up")
	}
	for plane, n := range down {
		out.gauge(d.lanes, n, plane, "down")
	}
	for k, sum := range lanes {
		out.gauge(d.laneQueue, sum.queue, k.plane, k.peer, k.lane)
		out.gauge(d.laneStreams, sum.streams, k.plane, k.peer, k.lane)
		if sum.rtt > 0 { // 0 = none was measured
			out.ch <- prometheus.MustNewConstMetric(d.laneRTT, prometheus.GaugeValue, sum.rtt, k.plane, k.peer, k.lane)
		}
	}
}

func (c *collector) collectTransports(out emitter) {
	d := &c.d
	for _, t := range c.transports {
		n := t.Counters()
		out.counter(d.dials, n.Dials, t.Plane())
		out.counter(d.dialErrors, n.DialErrors, t.Plane())
		out.counter(d.accepts, n.Accepts, t.Plane())
		out.counter(d.acceptErrors, n.AcceptErrors, t.Plane())
		if t.Plane() != transport.PlaneQUIC {
			continue
		}
		out.counter(d.udpDatagrams, n.PacketsIn, dirIn)
		out.counter(d.udpDatagrams, n.PacketsOut, dirOut)
		out.counter(d.libraryDrops, n.LibraryDrops)
		out.counter(d.packetsLost, n.PacketsLost)
		ports := make(map[int]transport.SocketInfo)
		for _, s := range t.Sockets() {
			s.Drops += ports[s.Port].Drops // two addresses of this host may have the same port
			ports[s.Port] = s
		}
		for port, s := range ports {
			p := strconv.Itoa(port)
			out.counter(d.udpDrops, s.Drops, p)
			out.gauge(d.udpBuffers, int64(s.RecvAsked), p, "receive", "asked")
			out.gauge(d.udpBuffers, int64(s.RecvGranted), p, "receive", "granted")
			out.gauge(d.udpBuffers, int64(s.SendAsked), p, "send", "asked")
			out.gauge(d.udpBuffers, int64(s.SendGranted), p, "send", "granted")
		}
	}
}
