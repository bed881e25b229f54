package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"os"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/cli"
	"github.com/laneway-ai/laneway/internal/program/redact"
)

// pprofFlag opens the profiles to other hosts.
const pprofFlag = "admin-pprof"

// DeclareProfiles declares the flag of Config.ProfilesForAll.
func DeclareProfiles(g *cli.Group) *bool {
	return g.Bool(pprofFlag, false,
		"serve /debug/pprof/ to clients on other hosts too: they can slow the process down, and read names out of it")
}

func (s *Server) profiles(forAll bool) {
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		if !forAll {
			h = loopbackOnly(h)
		}
		s.Handle(path, h)
	}
}

// loopbackOnly refuses clients on other hosts.
func loopbackOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !at.Addr().Unmap().IsLoopback() {
			http.Error(w, "profiles are for clients on this host: ask from here, or start the process with --"+
				pprofFlag, http.StatusForbidden)
			return
		}
		h(w, r)
	}
}

// cmdline is pprof.Cmdline without the secrets of addresses.
func cmdline(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, strings.Join(redact.Args(os.Args), "\x00"))
}
