//go:build unix

package doctor

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// playFewFiles judges the limit of open files after it was lowered for good.
func playFewFiles() int {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 300, Max: 300}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	r := &Report{}
	checkFiles(r, Config{Plane: settings("tls"), OpenRequests: 1000}, 3)
	checkFiles(r, Config{Worker: true, Plane: settings("quic", "tls")}, 0)
	if err := r.WriteJSON(os.Stdout); err != nil {
		return 1
	}
	return 0
}

// TestFewFiles: in a process that may open few files, the limit and the need are named.
func TestFewFiles(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), fewFilesEnv+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var r Report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.want(t, Fail, 1, "open files", "the limit is 300",
		"1 lanes to each of 3 worker processes, and --max-open-requests 1000 need 1515")
	r.want(t, Fail, 1, "open files", "8 endpoints and 1 lanes from each of 16 frontends need 536")
	r.want(t, Warn, 0, "clients")
	for _, f := range r.Findings {
		if !strings.Contains(f.Fix, "ulimit -n ") {
			t.Errorf("fix %q", f.Fix)
		}
	}
}
