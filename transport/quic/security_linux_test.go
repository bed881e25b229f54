package quic

import (
	"log/slog"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

func TestSecurity(t *testing.T) {
	transporttest.RunSecurity(t, transporttest.Secured{
		Bind: "127.0.0.1:0",
		New: func(t testing.TB, s transport.Security, log *slog.Logger) transport.Transport {
			tr, err := New(Config{Identity: s.Identity, Authority: s.Authority, Curves: s.Curves, Logger: log,
				RecvBuffer: 64 << 10, SendBuffer: 64 << 10, HandshakeTimeout: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return tr
		},
	})
}
