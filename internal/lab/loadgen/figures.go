package loadgen

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// figures turns samples into the report's figures. A figure whose samples are missing stays absent.
type figures struct {
	t0      time.Time
	samples []sample
	// when each request that completed ended, sorted; all phases, because all of them used the processors
	ends []int64
}

func newFigures(t0 time.Time, samples []sample, rows []report.Row) *figures {
	f := &figures{t0: t0, samples: samples}
	for i := range rows {
		if rows[i].OK() {
			f.ends = append(f.ends, rows[i].End)
		}
	}
	slices.Sort(f.ends)
	return f
}

// completed counts the requests that completed within (from, to].
func (f *figures) completed(from, to time.Time) int {
	at := func(t time.Time) int {
		n, _ := slices.BinarySearch(f.ends, int64(t.Sub(f.t0))+1)
		return n
	}
	return at(to) - at(from)
}

// around finds the samples next to the window's ends, false when none is near: a figure from another time would be
// none.
func (f *figures) around(w report.Span) (a, b *sample, ok bool) {
	near := func(at int64) (best int, dist int64) {
		best = -1
		for i := range f.samples {
			d := int64(f.samples[i].at.Sub(f.t0)) - at
			if d = max(d, -d); best < 0 || d < dist {
				best, dist = i, d
			}
		}
		return best, dist
	}
	i, d1 := near(w.Start)
	k, d2 := near(w.End)
	if i < 0 || max(d1, d2) > max(int64(2*sampleInterval), (w.End-w.Start)/20) {
		return nil, nil, false
	}
	if i == k { // a window that is shorter than the samples are apart
		i, k = max(i-1, 0), min(k+1, len(f.samples)-1)
	}
	return &f.samples[i], &f.samples[k], i < k
}

// window fills in the CPU figures and the machine's load of a window. It returns the least busy core's share.
func (f *figures) window(w *report.Window, span report.Span) (least float64, ok bool) {
	a, b, found := f.around(span)
	if !found {
		return 0, false
	}
	w.FrontendCPU, w.WorkerCPU = f.cpu(a, b, roleFrontend), f.cpu(a, b, roleWorker)
	if n := f.completed(a.at, b.at); n > 0 && a.selfOK && b.selfOK {
		w.LoadgenCPU = report.Ptr(b.self.Sub(a.self).Total().Seconds() * 1e3 / float64(n))
	}
	if !a.hostOK || !b.hostOK {
		return 0, false
	}
	mean, least, ok := b.host.Busy(a.host)
	if ok {
		w.MachineBusy = report.Ptr(mean)
	}
	return least, ok
}

// cpu is the processor time per completed request of all processes of a role, in ms; nil unless every one of them was
// read at both times. (Each process is read at its own moment, so each is divided by the requests of its own interval.)
func (f *figures) cpu(a, b *sample, role string) *float64 {
	total, any := 0.0, false
	for i, p := range b.procs {
		q := a.procs[i]
		if p == nil || q == nil {
			return nil // it may be of this role
		}
		if p.role != role {
			continue
		}
		after, ok1 := p.sum("process_cpu_seconds_total", nil)
		before, ok2 := q.sum("process_cpu_seconds_total", nil)
		n := f.completed(q.at, p.at)
		if !ok1 || !ok2 || n == 0 {
			return nil
		}
		total, any = total+(after-before)*1e3/float64(n), true
	}
	if !any {
		return nil
	}
	return &total
}

// delta is how much a metric grew over the whole run, added up over the processes of a role; nil when one of them lacks
// it at either end. A series that appeared during the run began at 0.
func (f *figures) delta(role, name string, ok func(a, b string) bool) *int64 {
	if len(f.samples) < 2 {
		return nil
	}
	first, last := f.samples[0].procs, f.samples[len(f.samples)-1].procs
	total, any := int64(0), false
	for i, p := range last {
		if p == nil {
			return nil
		}
		if p.role != role {
			continue
		}
		v, have := p.sum(name, ok)
		if !have || first[i] == nil {
			return nil
		}
		before, _ := first[i].sum(name, ok)
		if v < before { // the process was restarted
			return nil
		}
		total, any = total+int64(v-before), true
	}
	if !any {
		return nil
	}
	return &total
}

// labels lists the values of the first label of a metric, over the processes of a role.
func (f *figures) labels(role, name string) []string {
	var out []string
	if len(f.samples) == 0 {
		return nil
	}
	for _, p := range f.samples[len(f.samples)-1].procs {
		if p == nil || p.role != role {
			continue
		}
		for k := range p.values {
			if k.name == name && !slices.Contains(out, k.a) {
				out = append(out, k.a)
			}
		}
	}
	slices.Sort(out)
	return out
}

// received and sentOut pick the direction label of a counter.
func received(dir string) bool {
	return dir == "in" || dir == "received" || dir == "recv" || dir == "rx"
}
func sentOut(dir string) bool { return dir == "out" || dir == "sent" || dir == "send" || dir == "tx" }

// plane makes the report's plane section, nil when no frontend was scraped.
func (f *figures) plane(d *debugs) *report.Plane {
	in := func(a, _ string) bool { return received(a) }
	p := &report.Plane{
		Records:     f.delta(roleFrontend, "laneway_records_total", in),
		Reads:       f.delta(roleFrontend, "laneway_lane_reads_total", nil),
		Writes:      f.delta(roleWorker, "laneway_lane_writes_total", nil),
		Wakes:       f.delta(roleFrontend, "laneway_consumer_wakes_total", nil),
		Takeovers:   f.delta(roleFrontend, "laneway_lane_takeovers_total", nil),
		ResentBytes: f.delta(roleWorker, "laneway_lane_resent_bytes_total", nil),
	}
	if p.Records != nil && p.Writes != nil && *p.Writes > 0 {
		p.RecordsPerWrite = report.Ptr(float64(*p.Records) / float64(*p.Writes))
	}
	for _, end := range f.labels(roleFrontend, "laneway_streams_ended_total") {
		if n := f.delta(roleFrontend, "laneway_streams_ended_total",
			func(a, _ string) bool { return a == end }); n != nil {
			if p.StreamsEnded == nil {
				p.StreamsEnded = map[string]int64{}
			}
			p.StreamsEnded[end] = *n
		}
	}
	for _, plane := range f.labels(roleFrontend, "laneway_plane_records_total") {
		n := f.delta(roleFrontend, "laneway_plane_records_total",
			func(a, b string) bool { return a == plane && received(b) })
		if n != nil {
			if p.PlaneRecords == nil {
				p.PlaneRecords = map[string]int64{}
			}
			p.PlaneRecords[plane] = *n
		}
	}
	p.Lanes = d.reportLanes()
	if p.Records == nil && p.Reads == nil && p.PlaneRecords == nil && p.StreamsEnded == nil {
		return nil
	}
	return p
}

// udp makes the report's udp section, nil when no frontend counts any of it.
func (f *figures) udp(tokens int64, d *debugs) *report.UDP {
	u := &report.UDP{
		InDatagrams: f.delta(roleFrontend, "laneway_udp_datagrams_total",
			func(a, _ string) bool { return received(a) }),
		OutDatagrams: f.delta(roleFrontend, "laneway_udp_datagrams_total",
			func(a, _ string) bool { return sentOut(a) }),
		RcvbufErrors: f.delta(roleFrontend, "laneway_host_udp_rcvbuf_errors_total", nil),
		SocketDrops:  f.delta(roleFrontend, "laneway_udp_socket_drops_total", nil),
		LibraryDrops: f.delta(roleFrontend, "laneway_quic_library_drops_total", nil),
		PacketsLost:  f.delta(roleWorker, "laneway_quic_packets_lost_total", nil),
	}
	if u.InDatagrams != nil && tokens > 0 {
		u.DatagramsPerToken = report.Ptr(float64(*u.InDatagrams) / float64(tokens))
	}
	for _, port := range f.labels(roleFrontend, "laneway_udp_socket_drops_total") {
		n, err := strconv.Atoi(port)
		drops := f.delta(roleFrontend, "laneway_udp_socket_drops_total", func(a, _ string) bool { return a == port })
		if err == nil && drops != nil {
			u.Sockets = append(u.Sockets, report.UDPSocket{Port: n, Drops: drops, Lane: d.laneOf(n)})
		}
	}
	if u.InDatagrams == nil && u.RcvbufErrors == nil && u.SocketDrops == nil && u.LibraryDrops == nil &&
		u.PacketsLost == nil {
		return nil
	}
	return u
}

// datagramsPerToken is of a window: datagrams that came to the frontends' sockets / records that came by plane quic.
// nil when one of them was not read near the window's ends.
func (f *figures) datagramsPerToken(span report.Span) *float64 {
	a, b, ok := f.around(span)
	if !ok {
		return nil
	}
	grown := func(name string, pick func(a, b string) bool) (total float64, ok bool) {
		for i, p := range b.procs {
			q := a.procs[i]
			if p == nil || q == nil {
				return 0, false
			}
			if p.role != roleFrontend {
				continue
			}
			after, have := p.sum(name, pick)
			before, had := q.sum(name, pick)
			if !have || !had || after < before {
				return 0, false
			}
			total, ok = total+after-before, true
		}
		return total, ok
	}
	datagrams, ok1 := grown("laneway_udp_datagrams_total", func(a, _ string) bool { return received(a) })
	records, ok2 := grown("laneway_plane_records_total",
		func(a, b string) bool { return strings.HasSuffix(a, "quic") && received(b) })
	if !ok1 || !ok2 || records == 0 {
		return nil
	}
	return report.Ptr(datagrams / records)
}

// series adds the processors' use to the seconds of the time series.
func (f *figures) series(seconds []report.Second) {
	for i := range seconds {
		span := report.Span{Start: int64(i) * 1e9, End: int64(i+1) * 1e9}
		a, b := f.sampleBefore(span.Start), f.sampleBefore(span.End)
		if a == nil || b == nil || a == b {
			continue
		}
		// Samples are about a second apart, seldom exactly: what was used between two of them is scaled to one.
		scale := 1 / b.at.Sub(a.at).Seconds()
		s := &seconds[i]
		if a.selfOK && b.selfOK {
			s.LoadgenCPU = report.Ptr(b.self.Sub(a.self).Total().Seconds() * scale)
		}
		if a.hostOK && b.hostOK {
			if mean, _, ok := b.host.Busy(a.host); ok {
				s.Busy = &mean
			}
		}
		s.FrontendCPU, s.WorkerCPU = used(a, b, roleFrontend), used(a, b, roleWorker)
	}
}

// sampleBefore is the last sample that was taken up to a moment (with the leeway of a ticker), nil when there is none.
func (f *figures) sampleBefore(at int64) *sample {
	limit := f.t0.Add(time.Duration(at) + sampleInterval/2)
	var best *sample
	for i := range f.samples {
		if s := &f.samples[i]; !s.at.After(limit) {
			best = s
		}
	}
	return best
}

// used is the processor seconds per second of a role's processes between two samples, nil when one is missing.
func used(a, b *sample, role string) *float64 {
	total, any := 0.0, false
	for i, p := range b.procs {
		q := a.procs[i]
		if p == nil || q == nil {
			return nil
		}
		if p.role != role {
			continue
		}
		after, ok1 := p.sum("process_cpu_seconds_total", nil)
		before, ok2 := q.sum("process_cpu_seconds_total", nil)
		if sec := p.at.Sub(q.at).Seconds(); ok1 && ok2 && sec > 0 {
			total, any = total+(after-before)/sec, true
		}
	}
	if !any {
		return nil
	}
	return &total
}
