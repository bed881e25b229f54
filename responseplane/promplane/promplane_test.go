package promplane

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/mux"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counted is a transport that only counts.
type counted struct {
	plane    string
	counters transport.Counters
	sockets  []transport.SocketInfo
}

func (c counted) Plane() string { return c.plane }
func (c counted) Dial(context.Context, transport.DialRequest) (transport.Conn, error) {
	return nil, net.ErrClosed
}
func (c counted) Listen(context.Context, string, int) (transport.Listener, error) {
	return nil, net.ErrClosed
}
func (c counted) Sockets() []transport.SocketInfo { return c.sockets }
func (c counted) Counters() transport.Counters    { return c.counters }
func (c counted) Close() error                    { return nil }

// scrape registers the collector with a registry that checks what it is given, and returns the exposition.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, l := range lines {
		if !strings.Contains(text, "\n"+l+"\n") {
			t.Errorf("lacks %q", l)
		}
	}
}

func TestEverythingIsExported(t *testing.T) {
	s := responseplane.Stats{
		StreamsOpened: 10, StreamsEnded: map[string]uint64{"complete": 7, "killed": 1}, OpenStreams: 2, ClosingSlots: 3,
		RecordsIn: 1000, RecordsOut: 28, BytesIn: 60000, BytesOut: 500, Reads: 40, Wakes: 30, SinkCalls: 5, SinkSlow: 1,
		Writes: map[string]uint64{"flush": 6, "gap": 2}, ForgottenFlushes: 4, WindowStalls: 11, Refused: 12,
		LaneDeaths: map[string]uint64{"peer": 1}, RecordsDropped: map[string]uint64{"stale": 13}, CommittedBytes: 15,
		BufferedBytes: 16,
		LaneTakeovers: map[string]responseplane.Takeovers{"peer": {Count: 3, Time: 500 * time.Millisecond,
			Buckets: [11]uint64{1: 1, 5: 2}}},
		ResentBytes: 17, LogBytes: 18, LogFullSeconds: 1.5, LaneDownSeconds: 2.5, AcksAlone: 19, AcksAlong: 20,
		RecordsSkipped: 21,
		Links:          2, AddressesRefused: map[string]uint64{"link-local": 3},
		Planes: map[string]mux.PlaneStats{"quic": {RecordsIn: 700}, "tls": {RecordsIn: 200}},
		Lanes: []responseplane.LaneStats{
			{PeerName: "w-0", Plane: "quic", Lane: 0, Up: true, Streams: 1, QueueBytes: 100, RTT: 2 * time.Millisecond,
				RecordsIn: 600},
			// Another life of the same process, whose name is the same: it must not break the scrape.
			{PeerName: "w-0", Peer: transport.NodeID{1}, Plane: "quic", Lane: 0, Up: true, Streams: 1, QueueBytes: 50,
				RTT: time.Millisecond, RecordsIn: 100},
			{Peer: transport.NodeID{2}, Plane: "tls", Lane: 1, Up: true, RecordsIn: 200},
			{Peer: transport.NodeID{3}, Plane: "tls", Lane: 0},
		},
	}
	s.RecordsPerWrite[0], s.RecordsPerWrite[3], s.RecordsPerWrite[len(s.RecordsPerWrite)-1] = 5, 2, 1
	quic := counted{"quic",
		transport.Counters{PacketsIn: 70, PacketsOut: 71, PacketsLost: 72, LibraryDrops: 73, Dials: 3, DialErrors: 1},
		[]transport.SocketInfo{
			{Plane: "quic", Role: transport.RoleLane, Port: 4000, Drops: 5, RecvAsked: 8, RecvGranted: 16, SendAsked: 4,
				SendGranted: 8},
			{Plane: "quic", Role: transport.RoleLane, Port: 4000, Drops: 2, RecvAsked: 8, RecvGranted: 16, SendAsked: 4,
				SendGranted: 8},
		}}
	text := scrape(t, New(func() responseplane.Stats { return s }, quic,
		counted{plane: "tls", counters: transport.Counters{Accepts: 6}}))
	wantLines(t, text,
		"laneway_streams_opened_total 10", `laneway_streams_ended_total{end="complete"} 7`,
		`laneway_streams_ended_total{end="killed"} 1`,
		"laneway_open_streams 2", "laneway_closing_slots 3",
		`laneway_records_total{direction="in"} 1000`, `laneway_records_total{direction="out"} 28`,
		`laneway_bytes_total{direction="in"} 60000`, `laneway_bytes_total{direction="out"} 500`,
		`laneway_plane_records_total{direction="in",plane="quic"} 700`,
		`laneway_plane_records_total{direction="in",plane="tls"} 200`,
		`laneway_lane_writes_total{reason="flush"} 6`, "laneway_lane_reads_total 40", "laneway_consumer_wakes_total 30",
		"laneway_sink_calls_total 5", "laneway_sink_slow_calls_total 1", "laneway_forgotten_flushes_total 4",
		`laneway_records_per_write_bucket{le="1"} 5`, `laneway_records_per_write_bucket{le="4"} 5`,
		`laneway_records_per_write_bucket{le="8"} 7`,
		`laneway_records_per_write_bucket{le="4096"} 7`, `laneway_records_per_write_bucket{le="+Inf"} 8`,
		"laneway_records_per_write_sum 28", "laneway_records_per_write_count 8",
		"laneway_links 2", `laneway_lanes{plane="quic",state="up"} 2`, `laneway_lanes{plane="tls",state="up"} 1`,
		`laneway_lanes{plane="tls",state="down"} 1`, `laneway_refused_addresses{reason="link-local"} 3`,
		`laneway_lane_queue_bytes{lane="0",peer="w-0",plane="quic"} 150`,
		`laneway_lane_streams{lane="0",peer="w-0",plane="quic"} 2`,
		`laneway_lane_rtt_seconds{lane="0",peer="w-0",plane="quic"} 0.002`,
		`laneway_lane_streams{lane="1",peer="02000000000000000000000000000000",plane="tls"} 0`,
		`laneway_lane_deaths_total{reason="peer"} 1`, `laneway_lane_takeovers_total{reason="peer"} 3`,
		"laneway_lane_takeover_seconds_count 3", "laneway_lane_takeover_seconds_sum 0.5",
		`laneway_lane_takeover_seconds_bucket{le="0.003"} 1`,
		"laneway_lane_resent_bytes_total 17", "laneway_lane_log_bytes 18", "laneway_lane_log_full_seconds_total 1.5",
		"laneway_lane_down_seconds_total 2.5",
		`laneway_lane_acks_total{company="alone"} 19`, `laneway_lane_acks_total{company="along"} 20`,
		"laneway_records_skipped_total 21",
		`laneway_records_dropped_total{reason="stale"} 13`,
		"laneway_refused_terms_total 12", "laneway_window_stalls_total 11", "laneway_committed_bytes 15",
		"laneway_buffered_bytes 16",
		`laneway_udp_datagrams_total{direction="in"} 70`, `laneway_udp_datagrams_total{direction="out"} 71`,
		`laneway_udp_socket_drops_total{port="4000"} 7`,
		`laneway_udp_buffer_bytes{direction="receive",kind="asked",port="4000"} 8`,
		`laneway_udp_buffer_bytes{direction="send",kind="granted",port="4000"} 8`,
		"laneway_quic_library_drops_total 73", "laneway_quic_packets_lost_total 72",
		`laneway_transport_dials_total{plane="quic"} 3`, `laneway_transport_dial_errors_total{plane="quic"} 1`,
		`laneway_transport_accepts_total{plane="tls"} 6`,
	)
	if strings.Contains(text, `laneway_lane_rtt_seconds{lane="1"`) {
		t.Error("a round trip that was not measured is exported")
	}

	// Without transports, and before anything happened.
	text = scrape(t, New(func() responseplane.Stats { return responseplane.Stats{} }))
	wantLines(t, text, "laneway_streams_opened_total 0", "laneway_records_per_write_count 0")
	if strings.Contains(text, "udp") {
		t.Error("a process without QUIC exports UDP metrics")
	}
}

func TestPlanesThatCarriedNothingAreReported(t *testing.T) {
	s := responseplane.Stats{
		Planes:    map[string]mux.PlaneStats{"tls": {RecordsIn: 5, RecordsOut: 6}},
		Fallbacks: []mux.Fallback{{From: "quic", To: "tls", Reason: "timeout", Links: 2}},
	}
	text := scrape(t, New(func() responseplane.Stats { return s }, counted{plane: "quic"}, counted{plane: "tls"}))
	wantLines(t, text,
		`laneway_plane_records_total{direction="in",plane="quic"} 0`,
		`laneway_plane_records_total{direction="out",plane="quic"} 0`,
		`laneway_plane_records_total{direction="in",plane="tls"} 5`,
		`laneway_plane_records_total{direction="out",plane="tls"} 6`,
		`laneway_plane_fallbacks_total{from="quic",reason="timeout",to="tls"} 2`,
	)
}
