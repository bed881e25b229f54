package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/doctor"
)

// TestDoctor: the command takes the program's flags, its exit code follows what it found, and --json is for programs.
func TestDoctor(t *testing.T) {
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	examine := func(args ...string) (int, doctor.Report) {
		t.Helper()
		app := cli.New("frontend", "")
		addDoctor(app)
		var out bytes.Buffer
		app.Env, app.Stdout, app.Stderr = nil, &out, io.Discard
		code := app.Run(append([]string{"doctor", "--json", "--http-addr=127.0.0.1:0", "--admin-addr=127.0.0.1:0",
			"--udp-recv-buffer=64KiB", "--udp-send-buffer=64KiB",
			"--namespace=doctor-test", "--etcd-endpoints=" + etcd.Endpoints()[0], "--nats-url=" + nats.URL()}, args...),
			nil)
		var r doctor.Report
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v in %s", err, &out)
		}
		return code, r
	}
	code, r := examine()
	// no worker is registered, which is a warning
	if code != cli.ExitOK || r.Failed != 0 || r.Warned == 0 || r.Program != "frontend" {
		t.Errorf("exit code %d, %+v", code, r)
	}
	code, r = examine("--max-open-requests=9000000", "--http-tls-cert=gone.pem", "--http-tls-key=gone.pem")
	if code != cli.ExitFailure || r.Failed != 2 {
		t.Errorf("exit code %d, %+v", code, r)
	}
}
