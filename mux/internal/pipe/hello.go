package pipe

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laneway-ai/laneway/mux/internal/wire"
	"github.com/laneway-ai/laneway/transport"
)

// NewSecret makes a link secret.
func NewSecret() (s [16]byte) {
	_, _ = rand.Read(s[:]) // never fails (crypto/rand)
	return s
}

// SameSecrets compares both secrets of a link in constant time.
func SameSecrets(own, peer [16]byte, h *wire.HelloBody) bool {
	a := subtle.ConstantTimeCompare(own[:], h.PeerSecret[:])
	b := subtle.ConstantTimeCompare(peer[:], h.OwnSecret[:])
	return a&b == 1
}

// ReadHello reads the first record of a connection, exactly. A GOAWAY in its place is an *AwayError.
func ReadHello(conn transport.Conn) (*wire.HelloBody, error) {
	var head [wire.HeaderSize]byte
	n, err := readFull(conn, head[:])
	if other := notALane(conn, head[:n]); other != nil {
		return nil, other
	}
	if err != nil {
		return nil, fmt.Errorf("pipe: read HELLO: %w", err)
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
		return nil, fmt.Errorf("pipe: read HELLO: %w", err)
	}
	if h.Kind == wire.GoAway {
		code, text, err := wire.ParseGoAway(body)
		if err != nil {
			return nil, err
		}
		return nil, &AwayError{code, text}
	}
	hello, err := wire.ParseHello(body)
	if err != nil {
		return nil, err
	}
	return &hello, nil
}

// notALane looks at the first bytes of a lane of plane tcp: a peer of plane tls begins with a record of TLS, a
// ClientHello or the alert that answers what it cannot read. No record of ours begins so. nil says that it may be a
// lane.
func notALane(conn transport.Conn, head []byte) error {
	const alert, handshake = 21, 22
	if len(head) < 3 || head[0] != alert && head[0] != handshake || head[1] != 3 {
		return nil
	}
	info := conn.Info()
	return &transport.ProtocolError{
		Address: info.Remote.String(), Want: "a lane of plane " + info.Plane, Got: fmt.Sprintf("a record of TLS (% x)",
			head),
		Err: &wire.Error{Kind: wire.Kind(head[0]), Reason: "came before HELLO"}, // so that the peer is answered
	}
}

// readFull fills b; the end of the stream before it is full is io.ErrUnexpectedEOF.
func readFull(conn transport.Conn, b []byte) (int, error) {
	n, err := io.ReadFull(conn, b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Refuse tells the peer why a connection that is not up yet ends, and gives it a moment to read that.
func Refuse(conn transport.Conn, hello *wire.HelloBody, code wire.GoAwayCode, text string) {
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
