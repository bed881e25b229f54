package planeflags

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
	"github.com/laneway-ai/laneway/transport/tcp"
)

// Transports makes the transports of --response-plane, in order, for one node. Whoever gets them closes them; when one
// cannot be made, those before it are closed. A plane that protects nothing says so in the log.
func (s Settings) Transports(id *transport.Identity, log *slog.Logger) ([]transport.Transport, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	sec, err := s.security(id, log)
	if err != nil {
		return nil, err
	}
	var out []transport.Transport
	for _, plane := range Carriers(s.Planes) {
		t, err := s.transport(plane, sec, log)
		if err != nil {
			errs := []error{fmt.Errorf("--%s %s: %w", planeFlag, plane, err)}
			for _, made := range out {
				errs = append(errs, made.Close())
			}
			return nil, errors.Join(errs...)
		}
		out = append(out, t)
	}
	return out, nil
}

func (s Settings) transport(plane string, sec transport.Security, log *slog.Logger) (transport.Transport, error) {
	log = log.With("plane", plane)
	switch plane {
	case transport.PlaneTCP, transport.PlaneTLS:
		if plane == transport.PlaneTCP {
			log.Warn("plane tcp is neither encrypted nor authenticated: whoever can reach its ports can read and " +
				"inject responses")
		}
		cfg := tcp.Config{
			Identity: sec.Identity, TLS: plane == transport.PlaneTLS,
			RecvBuffer: s.TCPRecvBuffer, SendBuffer: s.TCPSendBuffer,
			Logger: log,
		}
		if cfg.TLS {
			cfg.Authority, cfg.Curves = sec.Authority, sec.Curves
		}
		t, err := tcp.New(cfg)
		if err != nil {
			return nil, err // not t: a nil *Transport in an interface is not nil
		}
		return t, nil
	case transport.PlaneQUIC:
		t, err := quic.New(quic.Config{
			Identity: sec.Identity, Authority: sec.Authority, Curves: sec.Curves, RecvBuffer: s.UDPRecvBuffer,
			SendBuffer: s.UDPSendBuffer,
			MaxMTU:     s.MaxMTU, StreamWindow: s.QUICStreamWindow, IdleTimeout: s.quicIdle(),
			DisableGRO: !s.GRO, DisableGSO: !s.GSO, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	return nil, fmt.Errorf("is not known: use %v", Planes())
}

// quicIdle is QUIC's own idle timeout. It is a backstop behind the PINGs of the mux, so it must not come before them.
func (s Settings) quicIdle() time.Duration { return max(s.Idle, 3*s.ActivePing) }
