package suite

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Programs that parts run; Tools says where they are.
const (
	self       = "bench"
	loadgen    = "loadgen"
	cluster    = "cluster"
	muxTest    = "mux.test"
	quicTest   = "quic.test"
	frontTest  = "frontend.test"
	frontend   = "frontend"
	mockworker = "mockworker"
)

// Part is one benchmark of the suite.
type Part struct {
	Name    string
	What    string
	Program string
	Dir     string // below the root of the checkout; Go benchmarks run in the folder of their package
	Args    []string
	// Passes is how often it is run, for Go benchmarks, which do not repeat themselves interleaved; 0 = once, it
	// repeats by itself.
	Passes  int
	Ratio   string  // of a Go benchmark: the unit of which each line is compared with a base
	Minutes float64 // what it takes on 2 cores
	// Artifacts says that the program takes --artifact-dir.
	Artifacts bool
	Quick     []string // replace Args in a quick suite, where it makes one pass
	// Apart: it is run when it is named only.
	Apart bool
}

// Parts are all of them, in the order in which they are run.
func Parts() []Part {
	return []Part{
		{Name: "transport", What: "messages over lanes, ports and a group of sockets", Program: loadgen,
			Args: words("transport"), Quick: words("transport --quick"), Minutes: 3, Artifacts: true},
		{Name: "streams", What: "16, 64 and 256 streams over 1 to 8 lanes; half the items of the command's default",
			Program: loadgen, Args: words("streams --item-count=100000"),
			Quick: words("streams --quick --lanes=1,4 --streams=16"), Minutes: 5, Artifacts: true},
		{Name: "peers", What: "load A: Laneway, other libraries and a bare connection", Program: self,
			Args: words("--pairs=3"), Quick: words("--pairs=1 --streams=24 --engines=4" + quickLoad), Minutes: 4.2,
			Artifacts: true},
		{Name: "peers-128-engines", What: "the same with 8 records a batch", Program: self,
			Args:  words("--pairs=3 --engines=128 --peer=bare-tcp,bare-quic,grpc"),
			Quick: words("--pairs=1 --peer=bare-tcp --streams=24 --engines=8" + quickLoad), Minutes: 2.6,
			Artifacts: true},
		{Name: "peers-8192", What: "the same with 8,192 open responses", Program: self,
			Args: words("--pairs=3 --streams=8192 --engines=64 --inter-token-latency=100ms --duration=5s " +
				"--peer=bare-tcp,bare-quic,grpc,tcp-connection"),
			Quick: words("--pairs=1 --peer=bare-tcp --streams=96 --engines=8" + quickLoad), Minutes: 4.3,
			Artifacts: true},
		{Name: "gaps", What: "gap against CPU and delays: 1,024 open responses, 128 engines", Program: self,
			Args:    words("gaps --pairs=3"),
			Quick:   words("gaps --pairs=1 --gap=0s,2ms --response-plane=tcp --streams=24 --engines=8" + quickLoad),
			Minutes: 2.8, Artifacts: true},
		{Name: "gaps-8192", What: "gap against CPU and delays: 8,192 open responses, 1,024 engines", Program: self,
			Args:    words("gaps --pairs=3 --streams=8192 --engines=1024 --inter-token-latency=160ms --duration=4s"),
			Quick:   words("gaps --pairs=1 --gap=0s,2ms --response-plane=quic --streams=96 --engines=16" + quickLoad),
			Minutes: 3.3, Artifacts: true},
		{Name: "plane", What: "load A: our planes and bare ones over the same transports, without HTTP",
			Program: loadgen,
			Args: words("plane --response-plane=tcp,quic --baseline=per-record,batched,per-response-connection " +
				"--runs=3 --engines=8 --frontends=1 --duration=3s --warmup-duration=2s --request-count=0 " +
				"--warmup-request-count=0"),
			Quick: words("plane --response-plane=tcp --baseline=batched --concurrency=24 --engines=4 --frontends=1 " +
				"--request-count=0" + quickLoad), Minutes: 2, Artifacts: true},
		{Name: "http", What: "one HTTP frontend with 8,192 responses, its plane replaced", Program: self,
			Args: words("http --pairs=3"),
			Quick: words("http --pairs=1 --streams=24 --engines=4 --osl=10 --inter-token-latency=20ms " +
				"--warmup-duration=150ms --duration=400ms"), Minutes: 4.6, Artifacts: true},
		{Name: "cluster",
			What: "frontend, workers, etcd, NATS and load generator with 8,192 responses of 128 tokens over HTTP: " +
				"our planes and the reference arms; two runs of each", Program: cluster,
			Args: words("--response-plane=tcp,mux-tcp,quic,record-quic,interval-quic --runs=2 --osl=128 " +
				"--request-count=6144"),
			Quick: words("--response-plane=tcp,interval-quic --workers=8 --processes=2 --concurrency=16 " +
				"--request-count=64 --osl=8 --inter-token-latency=10ms --steady-after=0s"), Minutes: 8.5,
			Artifacts: true},
		{Name: "udp", What: "ways to send and receive UDP datagrams", Program: self, Args: words("udp"),
			Quick: words("udp --bytes=1000000 --pairs=1 --transfers=1 --transfer-bytes=1000000"), Minutes: 1.5,
			Artifacts: true},
		{Name: "quic", What: "handshake, throughput, echoes, loss", Program: self, Args: words("quic"),
			Quick: words("quic --bytes=1MiB --memory-bytes=1MiB --echoes=20 --pairs=1"), Minutes: 0.5, Artifacts: true},
		goBench("mux-delay", "delivery delay and CPU of the mux, paced", muxTest, "mux",
			"Delay/plane/streams/record=64$", "100x", "cpu-ns/record", 1.2),
		goBench("mux-wire", "wire time of a first record", muxTest, "mux", "OnTheWire", "200x", "p50-ms", 0.5),
		goBench("mux-throughput", "what a record costs when nothing rests", muxTest, "mux", "Throughput", "100ms",
			"cpu-ns/record", 1),
		goBench("quic-settings", "QUIC by setting and by number of sockets", quicTest, "transport/quic",
			"Settings|FanIn", "64x", "cpu-ms/MiB", 1),
		goBench("out-path", "ways to write events to HTTP clients", frontTest, "internal/frontend", "OutPath", "50000x",
			"us/event", 0.5),
		goBench("allocations-mux", "allocations of a pass", muxTest, "mux", "Pass", "2000x", "ns/record", 0.7),
		goBench("allocations-http", "allocations of an event and of a response", frontTest, "internal/frontend",
			"Events|Response", "2000x", "allocs/op", 0.2),
		{Name: "transport-netns", What: "messages between two network namespaces, 20,000 of each kind (Linux, root)",
			Program: loadgen, Args: words("transport --netns"), Quick: words("transport --netns --quick"),
			Minutes: 11, Artifacts: true, Apart: true},
		{Name: "streams-netns",
			What:    "streams between two network namespaces; half the items of the command's default (Linux, root)",
			Program: loadgen, Args: words("streams --netns --item-count=100000"),
			Quick: words("streams --netns --quick --lanes=1,4 --streams=16"), Minutes: 6, Artifacts: true, Apart: true},
		{Name: "settings", What: "one setting changed at a time, against the default", Program: self,
			Args: words("settings"),
			Quick: words("settings --pairs=1 --setting=batch-gap-max-0,quic-gro-off --streams=24 --engines=4" +
				quickLoad), Minutes: 14, Artifacts: true, Apart: true},
	}
}

// quickLoad is the load of a quick suite's parts.
const quickLoad = " --osl=10 --inter-token-latency=10ms --warmup-duration=150ms --duration=300ms"

func words(s string) []string { return strings.Fields(s) }

// goBench is a Go benchmark, which is run three times. ratio is the unit of which each line is compared with a base:
// the same line on the first plane, or the first line.
func goBench(name, what, program, dir, pattern, benchtime, ratio string, minutes float64) Part {
	flags := func(benchtime, limit string) []string {
		return []string{"-test.run=^$", "-test.bench=" + pattern, "-test.benchtime=" + benchtime, "-test.timeout=" +
			limit}
	}
	return Part{Name: name, What: what, Program: program, Dir: dir, Args: flags(benchtime, "20m"), Passes: 3,
		Ratio: ratio, Minutes: minutes, Quick: flags("1x", "5m")}
}

// Shell is what a user types in the folder of the checkout to have the part's tables.
func (p Part) Shell() string {
	switch {
	case p.Dir != "":
		var args []string
		for _, a := range p.Args {
			name, value, _ := strings.Cut(strings.TrimPrefix(a, "-test."), "=")
			args = append(args, "-"+name+" '"+value+"'")
		}
		return "for i in $(seq " + strconv.Itoa(max(p.Passes, 1)) + "); do go test " + strings.Join(args, " ") + " ./" +
			p.Dir + "; done"
	case p.Program == self:
		return "cd bench && " + strings.Join(append([]string{"go run ."}, p.Args...), " ")
	}
	return strings.Join(append([]string{"go run ./cmd/" + p.Program}, p.Args...), " ")
}

// Names are those of all parts, or of those that are run when none is named.
func Names(apart bool) (out []string) {
	for _, p := range Parts() {
		if apart || !p.Apart {
			out = append(out, p.Name)
		}
	}
	return out
}

// quick is the part in a quick suite.
func (p Part) quick() Part {
	p.Args, p.Passes, p.Minutes = p.Quick, 1, min(p.Minutes, 0.5)
	return p
}

// limit is when the part is ended.
func (p Part) limit() time.Duration {
	return time.Duration((3*p.Minutes + 3) * float64(time.Minute))
}

// args are the arguments of one pass; dir is the part's folder.
func (p Part) args(dir string) []string {
	if !p.Artifacts {
		return p.Args
	}
	// A command of the program comes first.
	n := 0
	if len(p.Args) > 0 && !strings.HasPrefix(p.Args[0], "-") {
		n = 1
	}
	return append(append(append([]string{}, p.Args[:n]...), "--artifact-dir="+filepath.Join(dir, "run")), p.Args[n:]...)
}

func minutes(m float64) string { return strconv.FormatFloat(m, 'f', 1, 64) }
