package promplane

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("laneway_"+name, help, labels, nil)
}

// descs are the metrics of a collector, made with it.
type descs struct {
	streamsOpened, streamsEnded, openStreams, closingSlots             *prometheus.Desc
	records, bytes, planeRecords, fallbacks                            *prometheus.Desc
	writes, reads, wakes, perWrite, sinkCalls, sinkSlow, forgotten     *prometheus.Desc
	links, lanes, laneQueue, laneRTT, laneStreams, laneDeaths          *prometheus.Desc
	takeovers, takeoverTime, down, resent, log, logFull, acks, skipped *prometheus.Desc
	addresses                                                          *prometheus.Desc
	dropped, refused, stalls, committed, buffered                      *prometheus.Desc

	udpDatagrams, udpDrops, udpBuffers, libraryDrops, packetsLost *prometheus.Desc
	dials, dialErrors, accepts, acceptErrors                      *prometheus.Desc
}

func newDescs() descs {
	return descs{
		streamsOpened: desc("streams_opened_total", "Responses that were opened."),
		streamsEnded:  desc("streams_ended_total", "Responses that have ended, by kind of end.", "end"),
		openStreams:   desc("open_streams", "Responses that are open now."),
		closingSlots: desc("closing_slots",
			"Slots whose response has ended here and that wait for the worker's END (frontends)."),
		records: desc("records_total", "Records, one of which is usually a token.", "direction"),
		bytes:   desc("bytes_total", "Bytes on the lanes, record headers and control included.", "direction"),
		planeRecords: desc("plane_records_total",
			"Records by the plane that carried them, dead lanes included: the proof of what carried the tokens.",
			"plane", "direction"),
		fallbacks: desc("plane_fallbacks_total", "Links that took another plane than the first that both ends list.",
			"from", "to", "reason"),

		writes:   desc("lane_writes_total", "Writes to lanes, by what made them happen.", "reason"),
		reads:    desc("lane_reads_total", "Reads from lanes that brought something."),
		wakes:    desc("consumer_wakes_total", "Wakes of goroutines that wait for records."),
		perWrite: desc("records_per_write", "Records that one write carried."),

		sinkCalls: desc("sink_calls_total", "Calls of sinks, one for all records of a response that a read brought."),
		sinkSlow: desc("sink_slow_calls_total",
			"Calls of sinks, or runs of at most 16 in one pass, that took over 10 ms and held their lane up."),
		forgotten: desc("forgotten_flushes_total", "Writes of what was put and never flushed."),

		links: desc("links", "Peers to which there is a link."),
		lanes: desc("lanes", "Lanes by plane and state: up, or down while they have no connection.", "plane",
			"state"),
		laneQueue: desc("lane_queue_bytes", "Bytes that wait to be written to a lane.", "plane", "peer", "lane"),
		laneRTT: desc("lane_rtt_seconds", "Round trip of the last PING on a lane (frontends).", "plane", "peer",
			"lane"),
		laneStreams: desc("lane_streams", "Open responses on a lane.", "plane", "peer", "lane"),
		laneDeaths:  desc("lane_deaths_total", "Connections of lanes that have ended, by reason.", "reason"),
		addresses: desc("refused_addresses",
			"Addresses in the records of known nodes that are not dialled, by reason (frontends).", "reason"),

		takeovers: desc("lane_takeovers_total", "Lanes that went on over another connection, by reason.", "reason"),
		takeoverTime: desc("lane_takeover_seconds",
			"For how long lanes that were taken over had no connection (frontends)."),
		down:   desc("lane_down_seconds_total", "Time for which lanes had no connection, of all lanes together."),
		resent: desc("lane_resent_bytes_total", "Bytes that were sent again over another connection."),
		log: desc("lane_log_bytes",
			"Bytes that were sent and are kept until the other end has them, of all lanes together."),
		logFull: desc("lane_log_full_seconds_total",
			"Time for which lanes had to wait because what they keep had reached its limit."),
		acks:    desc("lane_acks_total", "ACKs, alone in a write or along with other records.", "company"),
		skipped: desc("records_skipped_total", "Records of killed responses that were not sent any more."),

		dropped: desc("records_dropped_total",
			"Records of the protocol that were dropped without being an error, by reason.", "reason"),
		refused: desc("refused_terms_total", "Terms of requests that could not be used (workers)."),
		stalls: desc("window_stalls_total",
			"Times that a response had to wait because its window was full (workers)."),
		committed: desc("committed_bytes",
			"Bytes of windows given away (frontends) or accepted (workers), and of what lanes keep."),
		buffered: desc("buffered_bytes", "Bytes that wait for their consumer (frontends)."),

		udpDatagrams: desc("udp_datagrams_total",
			"QUIC packets on this process's sockets, after reads and writes of several were split.", "direction"),
		udpDrops: desc("udp_socket_drops_total", "Datagrams that the kernel dropped at a socket that is open now.",
			"port"),
		udpBuffers: desc("udp_buffer_bytes",
			"Buffers of UDP sockets: asked for, and granted as getsockopt says it (Linux doubles what was asked).",
			"port", "direction", "kind"),
		libraryDrops: desc("quic_library_drops_total",
			"Packets that the QUIC library dropped because a connection's queue was full, counted on Linux as read "+
				"from the socket and never received."),
		packetsLost: desc("quic_packets_lost_total", "Packets that this process sent and took for lost."),

		dials:        desc("transport_dials_total", "Lanes that were dialled, by plane.", "plane"),
		dialErrors:   desc("transport_dial_errors_total", "Dials that failed, by plane.", "plane"),
		accepts:      desc("transport_accepts_total", "Lanes that were accepted, by plane.", "plane"),
		acceptErrors: desc("transport_accept_errors_total", "Accepts and handshakes that failed, by plane.", "plane"),
	}
}
