package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// TestFormatAndMerge: a format leaves standard output to the JSON object alone; two generators that ran together are
// joined, and the verdict is of both.
func TestFormatAndMerge(t *testing.T) {
	s := serve(t, 0, func(n int) string { return map[bool]string{true: "status"}[n == 7] })
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			format := []string{"vllm", "aiperf"}[i]
			code, stdout, stderr := call(t, "--url", s.URL, "-c", "2", "-n", "40", "--osl", "3", "--isl", "2",
				"--warmup-request-count", "0", "--ui", "none", "--max-error-rate", "1",
				"--format", format, "--artifact-dir", dir)
			var m map[string]any
			if err := json.Unmarshal([]byte(stdout), &m); code != 0 || err != nil ||
				m[[]string{"completed", "request_count"}[i]] == nil || !strings.Contains(stderr, "written to "+dir) {
				t.Errorf("%s: exit %d, %v\n%s\n%s", format, code, err, stdout, stderr)
			}
		})
	}
	wg.Wait()
	out := filepath.Join(t.TempDir(), "merged")
	code, stdout, stderr := call(t, "merge", dirs[0], dirs[1], "--artifact-dir", out, "--label", "two")
	if code != 2 || !strings.Contains(stdout, "two (merged-") || !strings.Contains(stderr, "1 of 80 requests failed") {
		t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	if r, err := report.Read(out); err != nil || r.Raw.Requests != 79 || r.Raw.Errors != 1 {
		t.Errorf("%v %+v", err, r)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{dirs[0], dirs[1], "--max-error-rate", "0.1", "--threshold", "ttft_p99<1ns"}, 3, "missed"},
		{[]string{dirs[0], dirs[0]}, 1, "hold the same run"},
		{[]string{dirs[0]}, 1, "two generators or more"},
		{[]string{dirs[0], dirs[1], "--artifact-dir", out}, 1, "already holds a run"},
	} {
		args := append([]string{"merge", "--artifact-dir", filepath.Join(t.TempDir(), "x")}, c.args...)
		if code, stdout, stderr := call(t, args...); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, want %d and %q\n%s\n%s", c.args, code, c.code, c.want, stdout, stderr)
		}
	}
}
