package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// MissingError names a field that a run of its kind must have.
type MissingError struct{ Field, Why string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s: %s is missing (%s)", RunFile, e.Field, e.Why)
}

// required lists what must be in run.json, by kind of run. It is the schema test's list: a field that moves in or out
// of the contract is changed here.
var (
	requiredAlways = []string{
		"schema", "id", "started_at", "marks", "config", "config.concurrency", "config.request_count", "config.isl",
		"config.osl",
		"environment.go", "environment.cpus", "raw.start_s", "raw.end_s", "raw.requests", "raw.errors",
		"raw.requests_per_s", "raw.output_tokens_per_s",
		"raw.loadgen_cpu_ms_per_request", "client.limited", "client.schedule_delay_p99_ms", "processes",
	}
	requiredDists = []string{"ttft_ms", "itl_ms", "icl_ms", "latency_ms", "effective_latency_ms"}
	distFields    = []string{"avg", "min", "p50", "p90", "p95", "p99", "p99_9", "max", "std"}
	// requiredCluster: a run whose config names the plane.
	requiredCluster = []string{
		"config.lanes", "config.server_endpoints", "config.workers", "config.worker_processes",
		"environment.kernel", "environment.revision", "raw.wrong_tokens", "raw.frontend_cpu_ms_per_request",
		"raw.worker_cpu_ms_per_request",
		"plane.records", "plane.reads", "plane.writes", "plane.records_per_write", "plane.wakes", "plane.streams_ended",
		"plane.takeovers", "plane.resent_bytes",
		"plane.plane_records", "holders", "holders_reference",
	}
	requiredTCP  = []string{"environment.tcp_congestion_control"}
	requiredQUIC = []string{
		"environment.rmem_max", "environment.wmem_max", "environment.sockets", "udp.in_datagrams", "udp.out_datagrams",
		"udp.rcvbuf_errors", "udp.socket_drops",
		"udp.library_drops", "udp.packets_lost", "udp.datagrams_per_token", "udp.sockets",
	}
)

// Check tells whether dir is a complete run directory: run.json reads, has every field that its plane must have and
// none that is unknown, every row reads, and rows and run.json agree on the counts. All complaints are joined. A run
// against a server that is not Laneway has no config.response_plane and is held to less.
func Check(dir string) error {
	b, err := readFile(dir, RunFile)
	if err != nil {
		return fmt.Errorf("%w", err)
	}
	run, err := Read(dir)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := json.Unmarshal(b, &tree); err != nil {
		return fmt.Errorf("%s: %w", RunFile, err)
	}
	var errs []error
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(new(Run)); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", RunFile, err))
	}
	need := func(fields []string, why string) {
		for _, f := range fields {
			if !present(tree, f) {
				errs = append(errs, &MissingError{f, why})
			}
		}
	}
	need(requiredAlways, "every run has it")
	if run.Raw != nil && run.Raw.Requests > 0 {
		for _, d := range requiredDists {
			for _, f := range distFields {
				need([]string{"raw." + d + "." + f}, "every run with a complete request has it")
				if run.Steady != nil && run.Steady.Requests > 0 && d != "icl_ms" {
					need([]string{"steady." + d + "." + f}, "a steady window has what the raw one has")
				}
			}
		}
	}
	if plane, ok := run.Config["response_plane"].(string); ok {
		need(requiredCluster, "a run over a named plane has it")
		switch {
		case strings.HasSuffix(plane, "quic"): // reference arms too
			need(requiredQUIC, "a run over "+plane+" has it")
		case strings.HasSuffix(plane, "tcp"), plane == "tls":
			need(requiredTCP, "a run over "+plane+" has it")
		}
	}
	return errors.Join(append(errs, checkRows(dir, run)...)...)
}

// CheckCluster is Check for a run of cmd/cluster, which asks the processes for more: the settings in force of the
// frontend and a worker process, and each figure of each UDP socket. That the lists are there says nothing about what
// is in them.
func CheckCluster(dir string) error {
	errs := []error{Check(dir)}
	run, err := Read(dir)
	if err != nil {
		return errors.Join(errs...) // Check has said so
	}
	for _, role := range []string{"frontend", "worker"} {
		if !slices.ContainsFunc(run.Environment.Settings,
			func(s Setting) bool { return s.Role == role && s.Name != "" && s.Process != "" }) {
			errs = append(errs, &MissingError{"environment.settings", "a cluster run has those of a " + role})
		}
	}
	if plane, _ := run.Config["response_plane"].(string); strings.HasSuffix(plane, "quic") {
		errs = append(errs, checkUDP(run)...)
	}
	return errors.Join(errs...)
}

// checkUDP finds what a socket of a run over QUIC lacks.
func checkUDP(run *Run) (errs []error) {
	need := func(list string, i int, field string, there bool) {
		if !there {
			errs = append(errs, &MissingError{fmt.Sprintf("%s.%d.%s", list, i, field), "every UDP socket has it"})
		}
	}
	for i, s := range run.Environment.Sockets {
		const list = "environment.sockets"
		need(list, i, "process", s.Process != "")
		need(list, i, "role", s.Role != "")
		need(list, i, "port", s.Port != 0)
		need(list, i, "recv_asked", s.RecvAsked != nil)
		need(list, i, "recv_granted", s.RecvGranted != nil)
		need(list, i, "send_asked", s.SendAsked != nil)
		need(list, i, "send_granted", s.SendGranted != nil)
		need(list, i, "gro", s.GRO != nil)
		need(list, i, "gso", s.GSO != nil)
	}
	if run.UDP == nil {
		return errs
	}
	for i, s := range run.UDP.Sockets {
		need("udp.sockets", i, "port", s.Port != 0)
		need("udp.sockets", i, "drops", s.Drops != nil)
	}
	return errs
}

// present walks a dotted path. An empty list counts as present for marks only: elsewhere it means that nothing was
// measured.
func present(tree map[string]any, path string) bool {
	var at any = tree
	for _, k := range strings.Split(path, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return false
		}
		if at, ok = m[k]; !ok || at == nil {
			return false
		}
	}
	if list, ok := at.([]any); ok && len(list) == 0 {
		return path == "marks"
	}
	return true
}

func checkRows(dir string, run *Run) (errs []error) {
	rows, bad, err := ReadRows(dir)
	if err != nil {
		return []error{fmt.Errorf("%w", err)}
	}
	for _, b := range bad {
		errs = append(errs, b)
	}
	seen := make(map[string]bool, len(rows))
	complete, failed, canceled := 0, 0, 0
	for i := range rows {
		r := &rows[i]
		if seen[r.ID] {
			errs = append(errs, fmt.Errorf("%s: %w", RowsFile, &TwiceError{ID: r.ID}))
		}
		seen[r.ID] = true
		if err := orderOf(r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", RowsFile, err))
		}
		if r.Phase != PhaseMeasured {
			continue
		}
		switch {
		case r.OK():
			complete++
		case r.Ended == EndCanceled:
			canceled++
		default:
			failed++
		}
	}
	kinds, lost := 0, 0
	for _, e := range run.Errors {
		kinds += e.Count
	}
	if run.Raw != nil {
		lost += run.Raw.Errors
	}
	if run.Warmup != nil {
		lost += run.Warmup.Errors
	}
	if kinds != lost {
		errs = append(errs, fmt.Errorf("%s has kinds of errors for %d requests, %d failed", RunFile, kinds, lost))
	}
	if w := run.Raw; w != nil && (w.Requests != complete || w.Errors != failed || w.Canceled != canceled) {
		errs = append(errs, fmt.Errorf("%s counts %d complete, %d failed, %d canceled requests, %s holds %d, %d, %d",
			RunFile, w.Requests, w.Errors, w.Canceled,
			RowsFile, complete, failed, canceled))
	}
	if err := regular(filepath.Join(dir, TimeseriesFile)); err != nil {
		errs = append(errs, fmt.Errorf("%w", err))
	}
	return errs
}

// orderOf checks that a row's times are in order.
func orderOf(r *Row) error {
	prev, name := r.Intended, "intended_ns"
	for _, t := range []struct {
		name string
		v    int64
	}{{"sent_ns", r.Sent}, {"first_ns", r.First}, {"last_ns", r.Last}, {"end_ns", r.End}} {
		if t.v == Absent {
			continue
		}
		if t.v < prev {
			return &OrderError{ID: r.ID, Later: t.name, Before: name}
		}
		prev, name = t.v, t.name
	}
	return nil
}
