package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/internal/program/cli"
)

// TestDoctor: with the flags that the worker will get, good ground gives exit code 0 and a taken port 1, which the text
// names.
func TestDoctor(t *testing.T) {
	etcd, nats := devtest.Etcd(t), devtest.NATS(t)
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for bind, want := range map[string]int{"127.0.0.1:0": cli.ExitOK, taken.LocalAddr().String(): cli.ExitFailure} {
		app := cli.New("mockworker", "")
		addDoctor(app)
		var out bytes.Buffer
		app.Env, app.Stdout, app.Stderr = nil, &out, io.Discard
		code := app.Run([]string{"doctor", "--admin-addr=127.0.0.1:0", "--bind-addr=" + bind, "--server-endpoints=1",
			"--response-plane=quic", "--udp-recv-buffer=64KiB",
			"--udp-send-buffer=64KiB", "--namespace=doctor-test", "--etcd-endpoints=" + etcd.Endpoints()[0],
			"--nats-url=" + nats.URL()}, nil)
		_, port, _ := net.SplitHostPort(bind)
		if code != want || (want != cli.ExitOK) != strings.Contains(out.String(), "fail  quic port "+port+
			": cannot be bound") {
			t.Errorf("--bind-addr %s: exit code %d\n%s", bind, code, &out)
		}
	}
}
