package transportbench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/laneway-ai/laneway/internal/program/planeflags"
	"github.com/laneway-ai/laneway/internal/program/procstat"
	"github.com/laneway-ai/laneway/transport"
)

// Spec says what the server makes for a cell.
type Spec struct {
	Plane     string `json:"plane"`
	MTU       int    `json:"mtu,omitempty"`   // 0 = discovered
	Endpoints int    `json:"endpoints"`       // server sockets, each with its port
	Group     int    `json:"group,omitempty"` // instead: sockets that share one port, quic only
}

// Opened is the answer to the operation open: the addresses to dial.
type Opened struct {
	Endpoints []string `json:"endpoints"`
}

// Drops are packets that were lost, by kind; nil = not known.
type Drops struct {
	Rcvbuf  *uint64 `json:"rcvbuf_errors,omitempty"` // of the network namespace
	Socket  *uint64 `json:"socket,omitempty"`
	Library *uint64 `json:"library,omitempty"` // inside the QUIC library
	Lost    *uint64 `json:"lost,omitempty"`    // as the senders saw it
}

// add adds what the other side has counted. What the server does not know stays unknown.
func (d *Drops) add(socket, library, lost uint64) {
	for _, k := range []struct {
		sum *uint64
		n   uint64
	}{{d.Socket, socket}, {d.Library, library}, {d.Lost, lost}} {
		if k.sum != nil {
			*k.sum += k.n
		}
	}
}

// Settings are the transport's settings of a spec: the programs' defaults.
func (s Spec) Settings() planeflags.Settings {
	return planeflags.Settings{
		Planes: []string{s.Plane}, UDPRecvBuffer: 8 << 20, UDPSendBuffer: 4 << 20, MaxMTU: s.MTU, Idle: transportIdle,
		GRO: true, GSO: true,
	}
}

// NewTransport makes the spec's transport for one side.
func (s Spec) NewTransport(log *slog.Logger) (transport.Transport, *transport.Identity, error) {
	id, err := transport.NewIdentity()
	if err != nil {
		return nil, nil, err
	}
	trs, err := s.Settings().Transports(id, log)
	if err != nil {
		return nil, nil, err
	}
	return trs[0], id, nil
}

// NewHandler makes the server's side of a control connection.
func NewHandler(host string, log *slog.Logger) Handler { return &handler{host: host, log: log} }

type handler struct {
	host string
	log  *slog.Logger

	tr     transport.Transport
	closes []func() error
	wg     sync.WaitGroup
	before *uint64 // RcvbufErrors
	group  *group  // sockets that share a port; nil = none are open
}

func (h *handler) Handle(ctx context.Context, op string, body []byte) (any, error) {
	switch op {
	case "open":
		return With(body, func(s Spec) (any, error) { return h.open(ctx, s) })
	case "drops":
		return h.drops(), nil
	case "close":
		return nil, h.Close()
	}
	return nil, fmt.Errorf("%q is not known", op)
}

func (h *handler) open(ctx context.Context, s Spec) (o Opened, err error) {
	if h.tr != nil || len(h.closes) > 0 {
		return o, errors.New("something is open")
	}
	h.before = rcvbufErrors()
	if s.Group > 0 {
		if h.group, err = openGroup(ctx, h.host, s); err != nil {
			return o, err
		}
		h.closes = append(h.closes, h.group.close)
		return Opened{[]string{h.group.address}}, nil
	}
	if h.tr, _, err = s.NewTransport(h.log); err != nil {
		return o, err
	}
	h.closes = append(h.closes, h.tr.Close)
	l, err := h.tr.Listen(ctx, net.JoinHostPort(h.host, "0"), s.Endpoints)
	if err != nil {
		return o, errors.Join(err, h.Close())
	}
	h.closes = append(h.closes, l.Close)
	h.wg.Go(func() { // ends with the listener
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			h.wg.Go(func() { // ends with the lane, which ends with its transport
				defer c.Close()
				_ = serveLane(c) // the client finds what is missing
			})
		}
	})
	for _, a := range l.Endpoints() {
		o.Endpoints = append(o.Endpoints, a.String())
	}
	return o, nil
}

func (h *handler) drops() Drops {
	d := Drops{Rcvbuf: grown(h.before)}
	if h.tr != nil && h.tr.Plane() == transport.PlaneQUIC {
		c := h.tr.Counters()
		d.Socket, d.Library, d.Lost = &c.SocketDrops, &c.LibraryDrops, &c.PacketsLost
	}
	if h.group != nil {
		h.group.drops(&d)
	}
	return d
}

// rcvbufErrors is the count of this network namespace, nil where it cannot be read.
func rcvbufErrors() *uint64 {
	c, ok := procstat.ReadUDP(procstat.Self)
	if !ok {
		return nil
	}
	n := uint64(c.RcvbufErrors)
	return &n
}

func grown(before *uint64) *uint64 {
	now := rcvbufErrors()
	if before == nil || now == nil {
		return nil
	}
	n := *now - *before
	return &n
}

func (h *handler) Close() error {
	var errs []error
	for i := len(h.closes) - 1; i >= 0; i-- {
		errs = append(errs, h.closes[i]())
	}
	h.closes, h.tr, h.group = nil, nil, nil
	h.wg.Wait()
	return errors.Join(errs...)
}
