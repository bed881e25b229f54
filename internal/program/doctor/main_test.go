package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laneway-ai/laneway/internal/program/discoveryflags"
	"github.com/laneway-ai/laneway/internal/program/planeflags"

	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/discovery/nats"
)

// fewFilesEnv makes the test binary a process that may open few files.
const fewFilesEnv = "DOCTOR_TEST_FILES"

func TestMain(m *testing.M) {
	if os.Getenv(fewFilesEnv) != "" { // see TestFewFiles
		os.Exit(playFewFiles())
	}
	goleak.VerifyTestMain(m)
}

// settings are a worker's or frontend's on loopback; the buffers are small enough for any machine.
func settings(planes ...string) planeflags.Settings {
	return planeflags.Settings{Planes: planes, Lanes: 1, ServerEndpoints: 4, BindAddr: "127.0.0.1:0",
		UDPRecvBuffer: 64 << 10, UDPSendBuffer: 64 << 10,
		KeepAlive: 5 * time.Second, Idle: 15 * time.Second, ActivePing: time.Second, Resume: 10 * time.Second,
		BatchGap: time.Millisecond, StreamWindow: 64 << 10,
		Urgent: true, GRO: true, GSO: true}
}

func at(etcdURL, natsURL string) discoveryflags.Settings {
	return discoveryflags.Settings{Namespace: "doctor-test", Etcd: etcd.Config{Endpoints: []string{etcdURL},
		Namespace: "doctor-test"},
		NATS: nats.Config{URL: natsURL, Namespace: "doctor-test"}}
}

func run(t *testing.T, cfg Config) *Report {
	t.Helper()
	cfg.Program, cfg.timeout = "test", 2*time.Second
	return Run(t.Context(), cfg)
}

// find returns the findings whose check or text holds all words.
func (r *Report) find(l Level, words ...string) (out []Finding) {
next:
	for _, f := range r.Findings {
		for _, w := range words {
			if !strings.Contains(f.Check+": "+f.Text, w) {
				continue next
			}
		}
		if f.Level == l {
			out = append(out, f)
		}
	}
	return out
}

func (r *Report) want(t *testing.T, l Level, n int, words ...string) {
	t.Helper()
	if got := r.find(l, words...); len(got) != n {
		t.Errorf("%d findings of level %s with %q, expected %d", len(got), l, words, n)
		r.log(t)
	}
}

func (r *Report) log(t *testing.T) {
	t.Helper()
	var b strings.Builder
	_ = r.Write(&b)
	t.Log("\n" + b.String())
}

// failures fails the test unless exactly the checks that begin with these words failed, each with a fix.
func (r *Report) failures(t *testing.T, checks ...string) {
	t.Helper()
	var got []string
	for _, f := range r.Findings {
		if f.Level == Fail {
			got = append(got, f.Check)
			if f.Fix == "" {
				t.Errorf("%s failed (%s) without a fix", f.Check, f.Text)
			}
		}
	}
	if !slices.EqualFunc(got, checks, strings.HasPrefix) {
		t.Errorf("failed: %q, expected %q", got, checks)
		r.log(t)
	}
	if (r.Err() != nil) != (len(checks) > 0) || r.Failed != len(got) {
		t.Errorf("error %v with %d failures", r.Err(), r.Failed)
	}
}

// within bounds calls of the tests' own clients.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dead(t *testing.T, scheme string) string {
	t.Helper()
	return fmt.Sprintf("%s://%s", scheme, closedPort(t))
}
