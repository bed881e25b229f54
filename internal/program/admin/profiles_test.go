package admin

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestProfilesAreForThisHost: the admin address is often open to a whole network, for scrapes.
func TestProfilesAreForThisHost(t *testing.T) {
	ask := func(s *Server, path, from string) int {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		s.mux.ServeHTTP(w, r)
		if strings.HasPrefix(path, "/debug") && w.Code == http.StatusForbidden && !strings.Contains(w.Body.String(),
			"--admin-pprof") {
			t.Errorf("%s: the refusal does not say what to do: %s", path, w.Body)
		}
		return w.Code
	}
	closed, open := start(t, Config{}), start(t, Config{ProfilesForAll: true})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/heap",
		"/debug/pprof/profile", "/debug/pprof/trace"} {
		for from, code := range map[string]int{
			"127.0.0.1:1": 200, "127.9.9.9:1": 200, "[::1]:1": 200, "[::ffff:127.0.0.1]:1": 200,
			"10.0.0.1:1": 403, "[fe80::1%eth0]:1": 403, "[::ffff:10.0.0.1]:1": 403, "@": 403, "": 403,
		} {
			if code == 200 && (strings.HasSuffix(path, "profile") || strings.HasSuffix(path, "trace")) {
				continue // they take their time
			}
			if got := ask(closed, path, from); got != code {
				t.Errorf("%s from %q: %d, want %d", path, from, got, code)
			}
		}
	}
	if got := ask(open, "/debug/pprof/heap", "10.0.0.1:1"); got != 200 {
		t.Errorf("with --admin-pprof: %d", got)
	}
	if got := ask(closed, "/livez", "10.0.0.1:1"); got != 200 {
		t.Errorf("/livez: %d", got)
	}
}

func TestCmdlineHasNoSecrets(t *testing.T) {
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = []string{"frontend", "--nats-url", "nats://svc:secret@host:4222",
		"--etcd-endpoints=http://root:secret@host:2379", "--otlp-endpoint=http://c/?key=secret", "--name=a"}
	want := "frontend --nats-url nats://xxxxx@host:4222 --etcd-endpoints=http://xxxxx@host:2379 " +
		"--otlp-endpoint=http://c/?key=xxxxx --name=a"
	if code, body := get(t, start(t, Config{}), "/debug/pprof/cmdline"); code != 200 || strings.ReplaceAll(body, "\x00",
		" ") != want {
		t.Errorf("%d %q", code, body)
	}
}
