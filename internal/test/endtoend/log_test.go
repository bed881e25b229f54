//go:build linux

package endtoend

import (
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestNobodyReadsTheLog: what reads the log of a program may die before it. Requests go on, and SIGTERM ends both
// programs in order.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pr, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	port := fixedPort(t)
	begin := func(path string, args []string) *exec.Cmd {
		cmd := exec.Command(path, append(args, "--log-level=debug")...)
		log, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		log.Close()
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // one that has ended is as good
		return cmd
	}
	both := []*exec.Cmd{
		begin(pr.Worker, w.args("w", []string{"--bind-addr=127.0.0.1:0", "--server-endpoints=1"})),
		begin(pr.Frontend, w.args("frontend", []string{"--http-addr=127.0.0.1:" + strconv.Itoa(port)})),
	}
	eventually(t, "an answer", func() bool {
		resp, err := w.client.Post("http://127.0.0.1:"+strconv.Itoa(port)+"/v1/completions", "application/json",
			strings.NewReader(`{"model":"mock","prompt":"x","max_tokens":1}`))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	for _, cmd := range both {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", cmd.Path, err)
		}
	}
}
