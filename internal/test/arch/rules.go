package arch

// module is the path that all packages begin with.
const module = "github.com/laneway-ai/laneway"

// kind says which bans hold for a package besides its own line of the table.
type kind int

const (
	library  kind = iota // an inference frontend embeds it
	exporter             // the one collector package of the plane's counters, for frontends that use Prometheus
	suite                // a test suite that implementations share; it may import testing
	helper               // only the commands and tests use it
	command
)

// rule says what a package may import. Paths are relative to the module; "x/..." is x and everything below it. The
// rule with the longest path that covers a package holds for it.
type rule struct {
	path    string
	kind    kind
	imports []string // packages of this module; its own subtree is always allowed where path ends in /...
	modules []string // other modules, by prefix; the standard library is always allowed
	why     string
}

// anyModule stands for every module that go.mod requires.
const anyModule = "*"

// table is section 4 of the design as data: imports point down only, siblings never import siblings.
var table = []rule{
	{path: "internal/program/seldom", kind: library,
		why: "every library package that logs what others can cause uses it, so it may depend on nothing"},

	{path: "internal/program/redact", kind: library,
		why: "library packages and programs hide secrets with it, so it may depend on nothing"},

	{path: "transport", kind: library,
		why: "the contract knows no implementation and nothing above it"},
	{path: "transport/internal/...", kind: library, imports: []string{"transport"}, modules: []string{"golang.org/x/"},
		why: "what the transports share knows the contract only"},
	{path: "transport/transporttest/...", kind: suite, imports: []string{"transport"},
		modules: []string{"go.uber.org/goleak"},
		why:     "the suite sees transports through the contract"},
	{path: "transport/memory/...", kind: library, imports: []string{"transport", "transport/internal/..."},
		why: "transports know the contract, never one another"},
	{path: "transport/tcp/...", kind: library, imports: []string{"transport", "transport/internal/...",
		"internal/program/seldom"}, modules: []string{"golang.org/x/"},
		why: "transports know the contract, never one another"},
	{path: "transport/quic/...", kind: library, imports: []string{"transport", "transport/internal/...",
		"internal/program/seldom"},
		modules: []string{"golang.org/x/", "github.com/quic-go/quic-go"},
		why:     "transports know the contract, never one another"},

	{path: "discovery", kind: library,
		why: "the contracts know no implementation and nothing above them"},
	{path: "discovery/internal/...", kind: library, imports: []string{"discovery"}, modules: []string{"golang.org/x/"},
		why: "what the implementations share knows the contracts only"},
	{path: "discovery/discoverytest/...", kind: suite, imports: []string{"discovery"},
		why: "the suite sees implementations through the contracts"},
	{path: "discovery/memory/...", kind: library, imports: []string{"discovery", "discovery/internal/..."},
		why: "implementations know the contracts, never one another"},
	{path: "discovery/static/...", kind: library, imports: []string{"discovery", "discovery/internal/...",
		"internal/program/seldom"}, modules: []string{"golang.org/x/"},
		why: "implementations know the contracts, never one another"},
	{path: "discovery/etcd/...", kind: library, imports: []string{"discovery", "discovery/internal/...",
		"internal/program/redact", "internal/program/seldom"},
		modules: []string{"go.etcd.io/etcd/api", "go.etcd.io/etcd/client", "google.golang.org/grpc", "go.uber.org/zap",
			"golang.org/x/"},
		why: "implementations know the contracts, never one another; only this one knows etcd"},
	{path: "discovery/nats/...", kind: library, imports: []string{"discovery", "discovery/internal/...",
		"internal/program/redact", "internal/program/seldom"},
		modules: []string{"github.com/nats-io/nats.go", "golang.org/x/"},
		why:     "implementations know the contracts, never one another; only this one knows NATS"},

	{path: "mux", kind: library, imports: []string{"mux/internal/...", "transport", "internal/program/seldom"},
		modules: []string{"golang.org/x/"},
		why:     "streams sit on the two sides of links, which sit on lanes, which sit on the codec"},
	{path: "mux/internal/wire", kind: library,
		why: "the codec depends on the standard library only, so that it can be read, fuzzed and ported alone"},
	{path: "mux/internal/pipe", kind: library, imports: []string{"mux/internal/wire", "transport"},
		modules: []string{"golang.org/x/"},
		why:     "a lane knows records and connections, no links and no streams"},
	{path: "mux/internal/dial", kind: library, imports: []string{"mux/internal/pipe", "mux/internal/wire", "transport"},
		modules: []string{"golang.org/x/"},
		why:     "a frontend's links know lanes, no streams, and not the other side"},
	{path: "mux/internal/accept", kind: library, imports: []string{"mux/internal/pipe", "mux/internal/wire",
		"transport", "internal/program/seldom"},
		modules: []string{"golang.org/x/"}, why: "a worker's links know lanes, no streams, and not the other side"},
	{path: "responseplane/...", kind: library, imports: []string{"mux/...", "transport", "discovery",
		"internal/program/seldom"}, modules: []string{"golang.org/x/"},
		why: "the public API sits on the mux and the two contracts, and knows no implementation"},
	{path: "responseplane/promplane", kind: exporter, imports: []string{"responseplane", "mux", "transport"},
		modules: []string{"github.com/prometheus/client_golang"},
		why:     "it reads snapshots of the plane and is the only library package that knows Prometheus"},

	{path: "internal/program/cli", kind: helper, imports: []string{"internal/program/redact"},
		modules: []string{"golang.org/x/sys"},
		why:     "the command line knows nothing about what it sets"},
	{path: "internal/program/procstat", kind: helper, modules: []string{"golang.org/x/sys",
		"github.com/prometheus/procfs"},
		why: "it reads the kernel and nothing of ours"},
	{path: "internal/program/planeflags", kind: helper, modules: []string{anyModule},
		imports: []string{"internal/program/cli", "internal/lab/refplane", "transport/...", "responseplane",
			"discovery"},
		why: "it is the one place below the commands that names concrete transports"},
	{path: "internal/program/discoveryflags", kind: helper, modules: []string{anyModule},
		imports: []string{"internal/program/cli", "internal/program/redact", "discovery/..."},
		why:     "it is the one place below the commands that names the implementations of discovery"},
	{path: "internal/program/...", kind: helper, modules: []string{anyModule},
		imports: []string{"responseplane/...", "mux/...", "transport", "discovery/...", "internal/program/chart"},
		why:     "what the programs share sits on the library, and takes transports through the contract"},
	{path: "internal/serving/...", kind: helper, imports: []string{"responseplane", "discovery"},
		why: "what a frontend and a worker say to each other knows neither of them"},
	{path: "internal/frontend/...", kind: helper, modules: []string{anyModule},
		imports: []string{"internal/serving/...", "internal/program/...", "responseplane/..."},
		why:     "the HTTP side knows no engine, no transport and no laboratory"},
	{path: "internal/engine/...", kind: helper, modules: []string{anyModule},
		imports: []string{"internal/serving/...", "internal/program/...", "responseplane/..."},
		why:     "what a worker runs knows the plane, and no frontend"},
	{path: "internal/lab/...", kind: helper, modules: []string{anyModule},
		imports: []string{"internal/serving/...", "internal/program/...", "internal/engine/mock/...",
			"responseplane/...", "mux/...", "transport", "discovery/..."},
		why: "the laboratory measures the product; it takes transports through the contract, and nothing of the " +
			"product imports it"},
	{path: "internal/test/...", kind: helper, modules: []string{anyModule}, imports: []string{"internal/..."},
		why: "end-to-end tests stand above everything"},

	{path: "cmd/...", kind: command, modules: []string{anyModule},
		imports: []string{"internal/...", "responseplane/...", "mux/...", "transport/...", "discovery/..."},
		why:     "commands may use everything but one another"},
	{path: "examples/...", kind: command, imports: []string{"responseplane", "transport/..."},
		why: "an example shows what a user of the library can do, so it takes only what a user can import"},
	{path: "python/...", kind: command, imports: []string{"responseplane", "transport/..."},
		why: "the real frontend, driven by the tests of the Python worker"},
	{path: "analysis/...", kind: command, modules: []string{anyModule}, imports: []string{"internal/lab/...",
		"internal/program/..."},
		why: "it reads run directories and knows nothing of the plane"},
}

// banned are imports that a kind of package never has, directly.
var banned = []struct {
	kinds   []kind
	path    string // exact, or a prefix that ends in /
	reason  string
	subtree bool
}{
	{kinds: []kind{library, exporter}, path: "flag", reason: "flags belong to the commands; a library takes a Config"},
	{kinds: []kind{library, exporter}, path: "testing", subtree: true,
		reason: "the library must not carry the test framework into a program"},
	{kinds: []kind{library, exporter, suite}, path: "net/http", subtree: true,
		reason: "the library opens no HTTP listener and forces no HTTP stack on its user"},
	{kinds: []kind{library, exporter, suite}, path: "expvar", reason: "it registers a global HTTP handler"},
	{kinds: []kind{library, exporter, suite}, path: "log", reason: "a *slog.Logger is handed in"},
	{kinds: []kind{library, exporter, suite}, path: "os/signal", reason: "signals belong to the program"},
	{kinds: []kind{library, suite}, path: "github.com/prometheus/", subtree: true,
		reason: "counters are atomics; a collector beside the commands exports them"},
	{kinds: []kind{library, exporter, suite, helper, command}, path: "github.com/nats-io/nats-server", subtree: true,
		reason: "servers live in the module devservers"},
	{kinds: []kind{library, exporter, suite, helper, command}, path: "go.etcd.io/etcd/server", subtree: true,
		reason: "servers live in the module devservers"},
}

// testOnly are packages that the tests of every package may import besides what the package itself may.
var testOnly = []string{
	"internal/lab/devserver/...", "internal/program/cli", "internal/program/procstat",
	"internal/frontend/outpath/outpathtest",
	"transport/...", "discovery/...", "mux/...",
}

// lean are packages that inference frontends embed without a discovery backend; nothing that they import, however far
// down, may be among leanBans.
var (
	lean = []string{"responseplane", "mux", "transport", "transport/tcp", "transport/memory", "discovery",
		"discovery/memory"}
	leanBans = []string{"net/http", "flag", "testing", "expvar", "os/signal",
		"github.com/prometheus/client_golang/prometheus",
		"google.golang.org/grpc", "go.etcd.io/etcd/client/v3", "github.com/nats-io/nats.go"}
)
