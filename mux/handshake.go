package mux

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laneway-ai/laneway/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// newSecret makes a link secret.
func newSecret() (s [16]byte) {
	_, _ = rand.Read(s[:]) // never fails (crypto/rand)
	return s
}

// secretsMatch compares both secrets of a link in constant time.
func secretsMatch(k *outLink, h *wire.HelloBody) bool {
	own := subtle.ConstantTimeCompare(k.ownSecret[:], h.PeerSecret[:])
	peer := subtle.ConstantTimeCompare(k.peerSecret[:], h.OwnSecret[:])
	return own&peer == 1
}

// readHello reads the first record of a lane, exactly. A GOAWAY in its place is a *goAwayError.
func readHello(conn transport.Conn) (*wire.HelloBody, error) {
	var head [wire.HeaderSize]byte
	if _, err := readFull(conn, head[:]); err != nil {
		return nil, fmt.Errorf("mux: read HELLO: %w", err)
	}
	h := wire.ParseHeader(head[:])
	if h.Kind != wire.Hello && h.Kind != wire.GoAway {
		return nil, &wire.Error{Kind: h.Kind, Slot: h.Slot, Reason: "came before HELLO"}
	}
	if err := h.Check(true); err != nil {
		return nil, err
	}
	body := make([]byte, h.Length) // at most wire.MaxControl
	if _, err := readFull(conn, body); err != nil {
		return nil, fmt.Errorf("mux: read HELLO: %w", err)
	}
	if h.Kind == wire.GoAway {
		code, text, err := wire.ParseGoAway(body)
		if err != nil {
			return nil, err
		}
		return nil, &goAwayError{code: code, text: text}
	}
	hello, err := wire.ParseHello(body)
	if err != nil {
		return nil, err
	}
	return &hello, nil
}

// readFull fills b; the end of the stream before it is full is io.ErrUnexpectedEOF.
func readFull(conn transport.Conn, b []byte) (int, error) {
	n, err := io.ReadFull(conn, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// refuse tells the peer why a lane that is not up yet ends, and gives it a moment to read that.
func refuse(conn transport.Conn, hello *wire.HelloBody, code wire.GoAwayCode, text string) {
	var b []byte
	if hello != nil {
		b = wire.AppendHello(b, hello)
	}
	if _, err := conn.Write(wire.AppendGoAway(b, code, text)); err != nil {
		return
	}
	_ = conn.CloseWrite()
	stop := time.AfterFunc(time.Second, func() { _ = conn.Close() })
	defer stop.Stop()
	_, _ = io.Copy(io.Discard, conn) // until the peer has read it and closes
}
