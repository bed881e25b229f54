package lanes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/laneway-ai/laneway/transport"
	"github.com/laneway-ai/laneway/transport/quic"
)

// pair is a dialler and an acceptor of plane quic with one lane between them.
type pair struct {
	dialler, acceptor *quic.Transport
	listener          transport.Listener
	dialled, accepted transport.Conn
}

// newPair opens a lane. The acceptor learns of it with the first byte, which is read before newPair returns.
func newPair(ctx context.Context, cfg quic.Config, log *slog.Logger) (p *pair, err error) {
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
	if p.dialled, err = p.dialler.Dial(ctx, transport.DialRequest{Address: p.listener.Endpoints()[0].String()}); err != nil {
		return p, err
	}
	if _, err := p.dialled.Write([]byte{1}); err != nil {
		return p, err
	}
	if p.accepted, err = p.listener.Accept(ctx); err != nil {
		return p, err
	}
	_, err = io.ReadFull(p.accepted, make([]byte, 1))
	return p, err
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

// check reads n bytes of transfer: the first of each chunk and where it ends are looked at, so that checking costs little.
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
