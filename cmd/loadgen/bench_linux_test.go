package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/internal/lab/transportbench"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// TestTwoProcesses measures from one process against another one, as on two hosts.
func TestTwoProcesses(t *testing.T) {
	for _, c := range []struct {
		args  []string
		cells int
	}{
		{[]string{"transport", "--message-count=64", "--planes=tcp,quic", "--tables=messages"}, 7 * 4},
		{[]string{"streams", "--item-count=256", "--planes=tcp", "--lanes=1,4", "--streams=16"}, 2 * 2},
	} {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		server := exec.Command(exe, c.args[0], "--listen=127.0.0.1:0")
		server.Env = append(os.Environ(), asProgram+"=1")
		var says lockedBuffer
		server.Stderr = &says
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		guard := time.AfterFunc(time.Minute, func() { _ = server.Process.Kill() })
		at := ""
		for end := time.Now().Add(30 * time.Second); at == ""; time.Sleep(5 * time.Millisecond) {
			if _, rest, ok := strings.Cut(says.String(), " listen="); ok && strings.Contains(rest, "\n") {
				at = strings.TrimSpace(rest)
			}
			if time.Now().After(end) {
				_ = server.Process.Kill()
				t.Fatalf("it does not say where it listens: %s", says.String())
			}
		}
		dir := filepath.Join(t.TempDir(), "run")
		client := exec.Command(exe, append(c.args, "--connect="+at, "--runs=1", "--json", "--artifact-dir="+dir)...)
		client.Env = server.Env
		var stdout, stderr lockedBuffer
		client.Stdout, client.Stderr = &stdout, &stderr
		if err := client.Run(); err != nil {
			t.Errorf("%v: %v\n%s", c.args, err, stderr.String())
		}
		var r transportbench.Report
		if err := json.Unmarshal([]byte(stdout.String()), &r); err != nil {
			t.Errorf("%v\n%s", err, stdout.String())
		}
		var written transportbench.Report
		if b, err := os.ReadFile(filepath.Join(dir, "run.json")); err != nil || json.Unmarshal(b, &written) != nil ||
			!reflect.DeepEqual(written, r) {
			t.Errorf("%v: run.json is not what was printed: %v", c.args, err)
		}
		cells := 0
		for _, tab := range r.Tables {
			cells += len(tab.Cells)
		}
		if cells != c.cells || !r.Remote || !strings.HasPrefix(r.Schema, "laneway."+c.args[0]) {
			t.Errorf("%v: %d cells, schema %s, remote %v", c.args, cells, r.Schema, r.Remote)
		}
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := server.Wait(); err != nil {
			t.Errorf("the server ends with %v: %s", err, says.String())
		}
		guard.Stop()
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"transport --listen=:1 --connect=h:1", "--listen :1 with --connect h:1: a process is one side"},
		{"streams --connect=h:1 --netns", `--netns with --listen "" or --connect "h:1"`},
		{"transport --quick --runs=2", "--quick with --runs 2"},
		{"transport --message-count=63", "--message-count"},
		{"transport --tables=all", `"all" is not known: use messages, lanes, ports, group`},
		{"transport --connect=127.0.0.1:1", "start the other side with --listen"},
		{"streams --lanes=3", `"3" is not known: use 1, 2, 4, 8, 16`},
		{"streams --connect=host", "write HOST:PORT"},
		{"streams --item-count=10", "--item-count"},
	} {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, _ := cmd.CombinedOutput() // the code says it
		if cmd.ProcessState.ExitCode() != cli.ExitFailure || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: exit code %d, expected %q in\n%s", c.args, cmd.ProcessState.ExitCode(), c.want, out)
		}
	}
}
