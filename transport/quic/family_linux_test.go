package quic

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/transport"
)

// Both families, and endpoints on wildcard addresses, where the kernel tells the address of each packet.
func TestFamiliesAndWildcards(t *testing.T) {
	six := true
	if c, err := net.ListenPacket("udp", "[::1]:0"); err != nil {
		six = false
	} else {
		c.Close()
	}
	for _, c := range []struct {
		bind, dial string
		six        bool
	}{{"0.0.0.0:0", "127.0.0.1", false}, {"127.0.0.1:0", "localhost", false}, {"[::1]:0", "::1", true},
		{"[::]:0", "::1", true}, {"[::]:0", "127.0.0.1", true}} {
		for _, off := range []bool{false, true} {
			t.Run(c.bind+" "+c.dial+map[bool]string{true: " no GRO"}[off], func(t *testing.T) {
				if c.six && !six {
					t.Skip("no IPv6 here")
				}
				a, _ := node(t, Config{DisableGRO: off})
				defer a.Close()
				b, id := node(t, Config{DisableGRO: off})
				defer b.Close()
				ln, err := b.Listen(t.Context(), c.bind, 2)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, port, _ := net.SplitHostPort(ln.Endpoints()[1].String())
				d, err := a.Dial(ctx, transport.DialRequest{Address: net.JoinHostPort(c.dial, port), Peer: id})
				if err != nil {
					t.Fatal(err)
				}
				const size = 1 << 20
				go d.Write(make([]byte, size))
				acc, err := ln.Accept(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.CopyN(io.Discard, acc, size); err != nil {
					t.Fatal(err)
				}
				go acc.Write(make([]byte, size))
				if _, err := io.CopyN(io.Discard, d, size); err != nil {
					t.Fatal(err)
				}
				if ip := acc.Info().Local.(*net.UDPAddr).IP; ip.IsUnspecified() {
					t.Errorf("the acceptor is at %v", acc.Info().Local)
				}
				if got, want := acc.Info().Remote.(*net.UDPAddr),
					d.Info().Local.(*net.UDPAddr); got.Port != want.Port || !got.IP.Equal(want.IP) {
					t.Errorf("the dialler is at %v, its acceptor sees %v", want, got)
				}
			})
		}
	}
}
