//go:build unix

package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/lab/report"
	"github.com/laneway-ai/laneway/internal/program/planeflags"
)

// The test binary plays the programs: links with their names lead to it. What a program does differently stands in an
// environment variable, as PROGRAM=BEHAVIOUR words; the directory in the other one gets a file for each process, named
// after its pid.
const (
	behaviourEnv = "CLUSTER_TEST_BEHAVIOUR"
	pidsEnv      = "CLUSTER_TEST_PIDS"
)

func TestMain(m *testing.M) {
	switch role := filepath.Base(os.Args[0]); role {
	case "frontend", "mockworker", "loadgen":
		os.Exit(play(role))
	case "owner":
		os.Exit(playOwner())
	}
	goleak.VerifyTestMain(m)
}

// playedNATS is the NATS that the programs are told of.
const playedNATS = "nats://svc:secret@nats:1"

// flagOf reads a flag of a played program.
func flagOf(name string) string {
	for _, a := range os.Args[1:] {
		if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return v
		}
	}
	return ""
}

// behaves tells whether the environment asks this program for a behaviour.
func behaves(name, behaviour string) bool {
	for _, w := range strings.Fields(os.Getenv(behaviourEnv)) {
		if w == name+"="+behaviour {
			return true
		}
	}
	return false
}

// coresOf are the cores that a process may use, as the kernel writes them; "" where it does not say.
func coresOf(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), "\nCpus_allowed_list:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

func play(role string) int {
	name := flagOf("name")
	if name == "" {
		name = role
	}
	if err := os.WriteFile(filepath.Join(os.Getenv(pidsEnv), strconv.Itoa(os.Getpid())),
		fmt.Appendf(nil, "%s %s cores=%s counted=%d", name, strings.Join(os.Args[1:], " "), coresOf("self"),
			runtime.NumCPU()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var nats string // frontend and workers get it here, where no list of processes shows it
	if role != "loadgen" {
		nats = "LANEWAY_NATS_URL=" + playedNATS
	}
	if args := strings.Join(os.Args, " "); strings.Contains(args, "secret") || nats != "" &&
		os.Getenv("LANEWAY_NATS_URL") != playedNATS {
		fmt.Fprintln(os.Stderr, "the URL of NATS came another way:", args)
		return 1
	}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "LANEWAY_") && kv != nats {
			fmt.Fprintln(os.Stderr, "a setting of the parent came through:", kv)
			return 1
		}
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if behaves(name, "stubborn") {
		signal.Reset(syscall.SIGTERM)
		signal.Ignore(syscall.SIGTERM)
	}
	if behaves(name, "early-death") {
		fmt.Fprintln(os.Stderr, "first words")
		fmt.Fprintln(os.Stderr, name+": cannot go on: the port is in use")
		return 1
	}
	if role == "loadgen" {
		return playLoad(name, term)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/plane", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, playedView(name)) })
	die := make(chan struct{}, 1)
	mux.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { die <- struct{}{} })
	go func() { _ = http.Serve(l, mux) }() // ends with the process
	if !behaves(name, "mute") {
		at := l.Addr().String()
		fmt.Fprintf(os.Stderr, "time=2026-01-01T00:00:00Z level=INFO msg=ready http=%s admin=%s\n", at, at)
	}
	select {
	case <-term:
		if behaves(name, "sour-end") {
			fmt.Fprintln(os.Stderr, "3 open responses were cut")
			return 1
		}
		return 0
	case <-die:
		fmt.Fprintln(os.Stderr, "out of memory")
		return 7
	}
}

// playedSettings are what a process of that name says of its settings.
func playedSettings(name string) []planeflags.Setting {
	return []planeflags.Setting{{Name: "lanes", Asked: "2", InForce: "tcp 2 at " + name}, {Name: "advertise-addr"}}
}

// playedView is a process's /debug/plane with 4 workers in 2 processes, all of them reachable unless the environment
// says otherwise.
func playedView(name string) string {
	type one struct {
		ID        string `json:"id"`
		Name      string `json:"name"`
		Reachable bool   `json:"reachable"`
		Err       string `json:"error,omitempty"`
	}
	var v struct {
		Workers struct {
			Reachable int `json:"reachable"`
		} `json:"workers"`
		List     []one                `json:"worker_list"`
		Settings []planeflags.Setting `json:"settings"`
	}
	v.Settings = playedSettings(name)
	for i := range 4 {
		w := one{ID: fmt.Sprintf("worker-%d-%d", i/2, i%2), Name: fmt.Sprintf("worker-%d", i/2), Reachable: true}
		if i == 3 && behaves("frontend", "reaches-3") {
			w.Reachable, w.Err = false, "no route to it"
		}
		if w.Reachable {
			v.Workers.Reachable++
		}
		v.List = append(v.List, w)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func playLoad(name string, term <-chan os.Signal) int {
	fmt.Fprintln(os.Stderr, "1/1 done")
	switch {
	case behaves(name, "endless"):
		<-term
		return 1
	case behaves(name, "kills-frontend"):
		admin := strings.TrimSuffix(flagOf("metrics-url"), "/metrics") // the first is the frontend's
		if _, err := http.Get(admin + "/die"); err == nil {
			<-term
		}
		return 1
	case behaves(name, "fails"):
		fmt.Fprintln(os.Stderr, "loadgen: no connection")
		return 1
	}
	if err := writeRun(flagOf("artifact-dir"), flagOf("run-info"), behaves(name, "wrong-token")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if behaves(name, "wrong-token") {
		return 2
	}
	return 0
}

// writeRun writes what a load generator that made one request would, as far as the cluster run looks at it.
func writeRun(dir, info string, wrong bool) error {
	b, err := os.ReadFile(info)
	if err != nil {
		return err
	}
	var i struct {
		Config      map[string]any     `json:"config"`
		Environment report.Environment `json:"environment"`
	}
	if err := json.Unmarshal(b, &i); err != nil {
		return err
	}
	d, err := report.Create(dir)
	if err != nil {
		return err
	}
	d.Add(&report.Row{ID: "a", Phase: report.PhaseMeasured, Ended: report.EndComplete, First: 1, Last: 2, End: 3,
		Status: 200, OutputTokens: 2, Chunks: 2})
	run := &report.Run{Schema: report.Schema, ID: "x", StartedAt: report.Stamp(time.Now()), Marks: []string{},
		Config: i.Config, Environment: i.Environment,
		Raw: &report.Window{Requests: 1, WrongTokens: report.Ptr(int64(0))},
		Processes: []report.Process{{Role: "frontend", Name: "frontend"}, {Role: "worker", Name: "worker-0"},
			{Role: "worker", Name: "worker-1"}}}
	if wrong {
		*run.Raw.WrongTokens = 3
	}
	return d.Finish(run, nil)
}
