package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/internal/lab/planebench"
)

const quicProtocol = "laneway-bench"

// QUICStream is one quic-go connection from each frontend to each worker process, with a QUIC stream for each response.
func QUICStream() planebench.Peer {
	return carrier{listen: listenQUIC, dial: dialQUIC}.peer("quic-stream")
}

// quicConfig is the default, but that all streams may be open at once.
func quicConfig() *quic.Config { return &quic.Config{MaxIncomingStreams: 1 << 20} }

func listenQUIC(context.Context) (listener, error) {
	cert, err := SelfSigned()
	if err != nil {
		return nil, err
	}
	ln, err := quic.ListenAddr("127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert},
		NextProtos: []string{quicProtocol}}, quicConfig())
	if err != nil {
		return nil, err
	}
	return quicListener{ln}, nil
}

// dialQUIC does not verify whom it meets: both ends are this program.
func dialQUIC(ctx context.Context, address string) (session, error) {
	conn, err := quic.DialAddr(ctx, address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{quicProtocol}},
		quicConfig())
	if err != nil {
		return nil, err
	}
	return quicSession{conn}, nil
}

type quicListener struct{ ln *quic.Listener }

func (l quicListener) Accept(ctx context.Context) (session, error) {
	conn, err := l.ln.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return quicSession{conn}, nil
}

func (l quicListener) Address() string { return l.ln.Addr().String() }
func (l quicListener) Close() error    { return l.ln.Close() }

type quicSession struct{ conn *quic.Conn }

func (q quicSession) Open(ctx context.Context) (io.ReadWriteCloser, error) {
	s, err := q.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return quicStream{s}, nil
}

func (q quicSession) Accept(ctx context.Context) (io.ReadWriteCloser, error) {
	s, err := q.conn.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	return quicStream{s}, nil
}

func (q quicSession) Close() error { return q.conn.CloseWithError(0, "") }

type quicStream struct{ *quic.Stream }

// Close ends both directions: what was written arrives, nothing more is read.
func (q quicStream) Close() error {
	q.CancelRead(0)
	return q.Stream.Close()
}

// SelfSigned is a certificate that nobody verifies.
func SelfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
