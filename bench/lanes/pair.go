package lanes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
)

// pair is a dialler and an acceptor of plane quic with one lane between them, or through a relay.
type pair struct {
	dialler, acceptor *quic.Transport
	listener          transport.Listener
	relay             *relay
	dialled, accepted transport.Conn
	handshake         time.Duration // of the lane
}

// path is what a lane goes through: nothing, when it is zero.
type path struct {
	loss float64
	rtt  time.Duration
}

// newPair opens a lane. The acceptor learns of it with the first byte, which is read before newPair returns.
func newPair(ctx context.Context, cfg quic.Config, through path, log *slog.Logger) (p *pair, err error) {
	p = &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	for _, t := range []**quic.Transport{&p.dialler, &p.acceptor} {
		c := cfg
		c.Logger = log
		if c.Identity, err = transport.NewIdentity(); err != nil {
			return p, err
		}
		if *t, err = quic.New(c); err != nil {
			return p, err
		}
	}
	if p.listener, err = p.acceptor.Listen(ctx, "127.0.0.1:0", 1); err != nil {
		return p, err
	}
	address := p.listener.Endpoints()[0].String()
	if through != (path{}) {
		if p.relay, err = newRelay(address, through.loss, through.rtt); err != nil {
			return p, err
		}
		address = p.relay.address()
	}
	began := time.Now()
	if p.dialled, p.accepted, err = p.lane(ctx, address, 0); err != nil {
		return p, err
	}
	p.handshake = time.Since(began)
	return p, nil
}

// lane opens a lane: the acceptor learns of it with its first byte, which is read before lane returns.
func (p *pair) lane(ctx context.Context, address string, number int) (dialled, accepted transport.Conn, err error) {
	if dialled, err = p.dialler.Dial(ctx, transport.DialRequest{Address: address, Lane: number}); err != nil {
		return nil, nil, err
	}
	_, err = dialled.Write([]byte{1})
	if err == nil {
		accepted, err = p.listener.Accept(ctx)
	}
	if err == nil {
		_, err = io.ReadFull(accepted, make([]byte, 1))
	}
	if err != nil {
		err = errors.Join(err, dialled.Close())
	}
	return dialled, accepted, err
}

func (p *pair) close() error {
	var errs []error
	for _, c := range []transport.Conn{p.dialled, p.accepted} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if p.listener != nil {
		errs = append(errs, p.listener.Close())
	}
	if p.relay != nil {
		errs = append(errs, p.relay.close())
	}
	for _, t := range []*quic.Transport{p.dialler, p.acceptor} {
		if t != nil {
			errs = append(errs, t.Close())
		}
	}
	return errors.Join(errs...)
}

// chunk is one write: what a lane's writer takes when it is busy.
const chunk = 64 << 10

// transfer sends n bytes from w to r and checks that they are what was sent.
func transfer(w io.Writer, r io.Reader, n int64) error {
	sent := make(chan error, 1)
	go func() { // ends when all is written, or with the lane; awaited below
		buf := make([]byte, chunk)
		for i := range buf {
			buf[i] = byte(i % 251)
		}
		for left := n; left > 0; left -= chunk {
			if _, err := w.Write(buf[:min(left, chunk)]); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	err := check(r, n)
	return errors.Join(err, <-sent)
}

// check reads n bytes of transfer: the first of each chunk and where it ends are looked at, so that checking costs
// little.
func check(r io.Reader, n int64) error {
	buf := make([]byte, chunk)
	for at := int64(0); at < n; at += chunk {
		b := buf[:min(n-at, chunk)]
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		for _, i := range []int{0, len(b) / 2, len(b) - 1} {
			if b[i] != byte(i%251) {
				return fmt.Errorf("byte %d is %d, expected %d", at+int64(i), b[i], byte(i%251))
			}
		}
	}
	return nil
}
