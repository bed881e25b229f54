package report

import "time"

// Schema names the format of run.json.
const Schema = "laneway.run/1"

// Names of the files of a run directory.
const (
	RunFile        = "run.json"
	RowsFile       = "requests.jsonl"
	TimeseriesFile = "timeseries.csv"
	HTMLFile       = "report.html"
)

// Marks: why a run's numbers must be read with care.
const (
	MarkNotSteady      = "not steady"      // the busiest 2 s hold over 3 times the mean starts
	MarkClientLimited  = "client-limited"  // the load generator's own scheduling delay p99 exceeds 5 ms
	MarkMachineLimited = "machine-limited" // all cores over 90% busy in the window
	// the load generator may run on the frontend's cores; its own work is then part of what it measures
	MarkSharedCores = "shared cores"
	MarkPartial     = "partial"             // ended before its request count or duration
	MarkNoProof     = "no proof of transit" // the plane's counters do not hold the tokens; the run is invalid
	MarkBundled     = "bundled"             // usage counts over 10% more tokens than chunks with content
	MarkNoUsage     = "no usage"            // complete answers did not say how many tokens they have
)

// Run is run.json. Pointers are nil when the figure was not measured.
type Run struct {
	Schema    string `json:"schema"`
	ID        string `json:"id"`
	Label     string `json:"label,omitempty"`
	StartedAt string `json:"started_at"` // RFC 3339 with offset
	// Marks is never null: an empty list says that all checks passed.
	Marks []string `json:"marks"`
	// Config holds every flag in force, and what the starter of the run knows of the other programs (workers,
	// response_plane, ...).
	Config      map[string]any `json:"config"`
	Environment Environment    `json:"environment"`
	Warmup      *Warmup        `json:"warmup,omitempty"`
	// Errors are the kinds of failures of all phases, the most frequent first.
	Errors    []ErrorKind `json:"errors,omitempty"`
	Raw       *Window     `json:"raw,omitempty"`
	Steady    *Window     `json:"steady,omitempty"`
	UDP       *UDP        `json:"udp,omitempty"`
	Plane     *Plane      `json:"plane,omitempty"`
	Processes []Process   `json:"processes,omitempty"`
	// Holders and HoldersReference count by the two rules of FindHolders; nil when the responses do not name their
	// worker process.
	Holders          *int   `json:"holders,omitempty"`
	HoldersReference *int   `json:"holders_reference,omitempty"`
	Client           Client `json:"client"`
}

// Environment is where the run took place.
type Environment struct {
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go,omitempty"`
	Kernel   string `json:"kernel,omitempty"`
	// CPUs is how many cores the run could use at once: by affinity, and by the quota of the control group (v1 or
	// v2), rounded up.
	CPUs int `json:"cpus,omitempty"`
	// CPUQuota is that quota in cores, absent without one; HostCPUs is how many cores the host has: machine_busy is a
	// share of those.
	CPUQuota             *float64          `json:"cpu_quota,omitempty"`
	HostCPUs             int               `json:"host_cpus,omitempty"`
	Pins                 map[string]string `json:"pins,omitempty"` // process name -> cores
	RmemMax              *int64            `json:"rmem_max,omitempty"`
	WmemMax              *int64            `json:"wmem_max,omitempty"`
	MTU                  *int              `json:"mtu,omitempty"`
	Netns                bool              `json:"netns,omitempty"` // the processes ran in network namespaces of their own
	TCPCongestionControl string            `json:"tcp_congestion_control,omitempty"`
	Sockets              []Socket          `json:"sockets,omitempty"`
	// Settings are the transports' settings of the frontend and of one worker process, as /debug/plane says them after
	// the load.
	Settings []Setting `json:"settings,omitempty"`
}

// Setting is a setting of one process as it was asked for and as it was in force.
type Setting struct {
	Process string `json:"process"`
	Role    string `json:"role"` // frontend or worker
	Name    string `json:"name"` // of the flag, without the dashes
	Asked   string `json:"asked"`
	InForce string `json:"in_force"`
}

// Socket is one socket of the plane, with the buffers asked for and granted (bytes, as getsockopt says them).
type Socket struct {
	Process     string `json:"process,omitempty"`
	Role        string `json:"role,omitempty"` // lane or endpoint
	Port        int    `json:"port"`
	RecvAsked   *int64 `json:"recv_asked,omitempty"`
	RecvGranted *int64 `json:"recv_granted,omitempty"`
	SendAsked   *int64 `json:"send_asked,omitempty"`
	SendGranted *int64 `json:"send_granted,omitempty"`
	GRO         *bool  `json:"gro,omitempty"`
	GSO         *bool  `json:"gso,omitempty"`
}

// Dist is a distribution in milliseconds. Percentiles are the smallest value that at least that share does not exceed.
type Dist struct {
	Avg  float64 `json:"avg"`
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	Std  float64 `json:"std"`
}

// Window is what was measured over one set of requests.
//
// Raw holds all measured requests and lasts from the first one's start to the last one's end. Steady holds those that
// started at least steady-after past the first, before load stopped being held at the target, and lasts from the one to
// the other; its rates divide by that time. Latencies leave failed requests out; Errors stands beside them.
type Window struct {
	StartS float64 `json:"start_s"` // seconds after the run's start
	EndS   float64 `json:"end_s"`
	// Requests ended complete; Errors did not. Canceled are those that an interrupt ended; they are neither.
	Requests int `json:"requests"`
	Errors   int `json:"errors"`
	Canceled int `json:"canceled,omitempty"`
	// WrongTokens is nil when no response could be verified; Audited is how many were.
	WrongTokens     *int64         `json:"wrong_tokens,omitempty"`
	Audited         int            `json:"audited,omitempty"`
	ErrorsByType    map[string]int `json:"errors_by_type,omitempty"`
	RequestsPerS    *float64       `json:"requests_per_s,omitempty"`
	OutputTokensPer *float64       `json:"output_tokens_per_s,omitempty"`
	// OutputTokens is the sum over the complete requests, Chunks counts their content chunks.
	OutputTokens *int64 `json:"output_tokens,omitempty"`
	Chunks       int64  `json:"chunks"`

	TTFT             *Dist `json:"ttft_ms,omitempty"`
	ITL              *Dist `json:"itl_ms,omitempty"`
	ICL              *Dist `json:"icl_ms,omitempty"`
	Latency          *Dist `json:"latency_ms,omitempty"`
	EffectiveLatency *Dist `json:"effective_latency_ms,omitempty"`

	// GoodRequests met every limit of --goodput; nil when none was given.
	GoodRequests    *int     `json:"good_requests,omitempty"`
	GoodputRequests *float64 `json:"goodput_requests_per_s,omitempty"`

	FrontendCPU *float64 `json:"frontend_cpu_ms_per_request,omitempty"`
	WorkerCPU   *float64 `json:"worker_cpu_ms_per_request,omitempty"`
	LoadgenCPU  *float64 `json:"loadgen_cpu_ms_per_request,omitempty"`
	// MachineBusy is the share of all cores' time that was not idle, 0 to 1.
	MachineBusy *float64 `json:"machine_busy,omitempty"`
}

// Warmup counts the warm-up requests. They are in no other figure but the tokens of the plane's proof and the
// processes' CPU time.
type Warmup struct {
	Requests     int            `json:"requests"`
	Errors       int            `json:"errors"`
	WrongTokens  *int64         `json:"wrong_tokens,omitempty"`
	ErrorsByType map[string]int `json:"errors_by_type,omitempty"`
}

// UDP counts datagrams and drops over the whole run. In and out are QUIC packets on the frontends' own sockets, after
// GRO reads were split.
type UDP struct {
	InDatagrams       *int64   `json:"in_datagrams,omitempty"`
	OutDatagrams      *int64   `json:"out_datagrams,omitempty"`
	RcvbufErrors      *int64   `json:"rcvbuf_errors,omitempty"` // of the frontend's network namespace
	SocketDrops       *int64   `json:"socket_drops,omitempty"`  // kernel drops of the frontends' sockets
	LibraryDrops      *int64   `json:"library_drops,omitempty"` // inside quic-go
	PacketsLost       *int64   `json:"packets_lost,omitempty"`  // as the senders saw it
	DatagramsPerToken *float64 `json:"datagrams_per_token,omitempty"`
	// SteadyDatagramsPerToken is of the steady window: over the whole run the batches of the time in which the load
	// ends count too, which are emptier.
	SteadyDatagramsPerToken *float64    `json:"steady_datagrams_per_token,omitempty"`
	Sockets                 []UDPSocket `json:"sockets,omitempty"`
}

// UDPSocket is one frontend socket's drops.
type UDPSocket struct {
	Port  int    `json:"port"`
	Lane  *int   `json:"lane,omitempty"`
	Drops *int64 `json:"drops,omitempty"`
}

// Plane counts the work of the plane over the whole run: records, reads and wakes at the frontends, writes at the
// workers.
type Plane struct {
	Records         *int64           `json:"records,omitempty"`
	Reads           *int64           `json:"reads,omitempty"`
	Writes          *int64           `json:"writes,omitempty"`
	RecordsPerWrite *float64         `json:"records_per_write,omitempty"`
	Wakes           *int64           `json:"wakes,omitempty"`
	StreamsEnded    map[string]int64 `json:"streams_ended,omitempty"`
	// Takeovers is how often lanes went on over another connection, ResentBytes what workers sent again then.
	Takeovers   *int64 `json:"takeovers,omitempty"`
	ResentBytes *int64 `json:"resent_bytes,omitempty"`
	Lanes       []Lane `json:"lanes,omitempty"`
	// PlaneRecords is the proof of transit: records that the frontends took from each plane.
	PlaneRecords map[string]int64 `json:"plane_records,omitempty"`
}

// Lane is one lane's share.
type Lane struct {
	Process string `json:"process,omitempty"`
	Lane    int    `json:"lane"`
	Streams *int64 `json:"streams,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
}

// Process is one process of the run.
type Process struct {
	Role string `json:"role"` // frontend, worker, loadgen, etcd, nats
	Name string `json:"name"`
	// CPUSeconds is user and system time over the whole run.
	CPUSeconds *float64 `json:"cpu_s,omitempty"`
	RSSPeak    *int64   `json:"rss_peak_bytes,omitempty"`
	// Requests, MeanFirstResponse and Holder are of the measured requests that this worker process answered.
	Requests          *int     `json:"requests,omitempty"`
	MeanFirstResponse *float64 `json:"mean_first_response_ms,omitempty"`
	Holder            *bool    `json:"holder,omitempty"`
	// MetricFirstResponse is the mean of the worker process's own laneway_worker_time_to_first_response_seconds over
	// MetricResponses responses of the whole run, warm-up included. It is measured at the engine, so it has no part of
	// the frontend or the network in it.
	MetricFirstResponse *float64 `json:"metric_first_response_ms,omitempty"`
	MetricResponses     *int64   `json:"metric_responses,omitempty"`
	// GOMAXPROCS is how many threads the process may run Go code on at once.
	GOMAXPROCS *int `json:"gomaxprocs,omitempty"`
}

// Client is the load generator's judgement of itself.
type Client struct {
	Limited bool `json:"limited"`
	// ScheduleDelayP99 is how late the load generator's own loops were, in milliseconds.
	ScheduleDelayP99 *float64 `json:"schedule_delay_p99_ms,omitempty"`
	// Kind names the client that made the load: "io_uring", "epoll" or "goroutines".
	Kind string `json:"kind,omitempty"`
	// Tick is how long the client lets events gather when they come fast, in milliseconds.
	Tick *float64 `json:"tick_ms,omitempty"`
}

// Mark adds a mark once.
func (r *Run) Mark(m string) {
	for _, have := range r.Marks {
		if have == m {
			return
		}
	}
	r.Marks = append(r.Marks, m)
}

// Marked tells whether the run has the mark.
func (r *Run) Marked(m string) bool {
	for _, have := range r.Marks {
		if have == m {
			return true
		}
	}
	return false
}

// Best is the window that stands for the run: steady when it holds requests, else raw. It is nil for a run without any.
func (r *Run) Best() *Window {
	if r.Steady != nil && r.Steady.Requests > 0 {
		return r.Steady
	}
	return r.Raw
}

// Ptr returns a pointer to v: "this was measured".
func Ptr[T any](v T) *T { return &v }

// Stamp formats a start time for StartedAt.
func Stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }
