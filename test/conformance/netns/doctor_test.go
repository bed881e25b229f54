package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/netns"
)

// doctorReport is what of a report matters here.
type doctorReport struct {
	Findings []struct{ Level, Check, Text string }
}

// examine runs a program's doctor in a namespace.
func examine(t *testing.T, node *netns.Node, program string, args ...string) (*doctorReport, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"doctor", "--json"}, args...)...)
	var stderr output
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	var r doctorReport
	derr := json.NewDecoder(stdout).Decode(&r)
	err = cmd.Wait()
	if exit := new(exec.ExitError); derr != nil || err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v, %v: %s", err, derr, &stderr)
	}
	return &r, cmd.ProcessState.ExitCode()
}

// failures are the checks that failed, with what was found.
func failures(r *doctorReport) (out []string) {
	for _, f := range r.Findings {
		if f.Level == "fail" {
			out = append(out, f.Check+": "+f.Text)
		}
	}
	return out
}

// TestDoctorFindsBlockedPort: a frontend's doctor is content with a worker in another namespace until one of its UDP
// ports is dropped there, and then names it; a worker's doctor finds that packets of --max-mtu do not fit its
// interface.
func TestDoctorFindsBlockedPort(t *testing.T) {
	r := newRig(t, setup{planes: "quic,tls", lanes: 1})
	p := programs(t)
	flags := append([]string{"--admin-addr=127.0.0.1:0"}, r.discovery...)
	front := append([]string{"--http-addr=127.0.0.1:0"}, flags...)
	report, code := examine(t, r.net.Node("frontend"), p.Frontend, front...)
	if code != 0 || len(report.Findings) < 10 {
		t.Errorf("exit code %d before anything is blocked: %v", code, failures(report))
	}
	port := fmt.Sprint(firstPort + 1)
	r.drop(t, "worker", "ipproto", "udp", "dport", port)
	report, code = examine(t, r.net.Node("frontend"), p.Frontend, front...)
	if got := failures(report); code != 1 || len(got) != 1 ||
		!strings.Contains(got[0], "worker process worker, quic 198.18.0.3:"+port+": no answer") {
		t.Errorf("exit code %d with a blocked port: %v", code, got)
	}
	r.lowerMTU(t, "worker")
	report, code = examine(t, r.net.Node("worker"), p.Worker,
		append([]string{"--bind-addr=" + r.net.Node("worker").Addr4.String() + ":7100", "--max-mtu=1452"}, flags...)...)
	if got := failures(report); code != 1 || len(got) != 1 ||
		!strings.Contains(got[0], "MTU of eth0: 1400 leaves 1372 bytes for a QUIC packet, --max-mtu 1452 is more") {
		t.Errorf("exit code %d with packets that do not fit: %v", code, got)
	}
	r.frontend.stop(t)
	r.worker.stop(t)
}
