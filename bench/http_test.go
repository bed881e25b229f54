package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/program/cli"
)

// TestHTTPFlags: what cannot be is refused before a process is started, by name and with the fix. The runs themselves
// are tested in httpbench.
func TestHTTPFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--streams=64,many"}, "--streams many: is no number"},
		{[]string{"--streams=8192,8192"}, "8192 stands twice"},
		{[]string{"--streams=1,8192", "--inter-token-latency=1ms"}, "--equal-rate=false"},
		{[]string{"--arm=nonesuch"}, "in-process, laneway-tcp"},
		{[]string{"--engines=1"}, "--engines 1 with --worker-processes 2"},
		{[]string{"--response-plane=tcp"}, "--response-plane"},
	} {
		app := newApp()
		var stderr bytes.Buffer
		app.Stdout, app.Stderr = &bytes.Buffer{}, &stderr
		if code := run(append([]string{"http", "--artifact-dir=" + t.TempDir()}, c.args...),
			app); code != cli.ExitFailure || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: exit code %d: %s", c.args, code, stderr.String())
		}
	}
}
