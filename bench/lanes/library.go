package lanes

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/laneway-ai/laneway/bench/peers"
)

// inMemory measures the QUIC library alone, over a packet connection without sockets: no system call, one process.
func inMemory(ctx context.Context, cfg CaliberConfig, f *figures) (err error) {
	a, b := newPacketPair()
	client, server, end, err := library(ctx, a, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	out, in, err := stream(ctx, client, server)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := transfer(out, in, cfg.Memory); err != nil {
		return err
	}
	f.rate(libraryOne, cfg.Memory, time.Since(began))
	v, err := echoes(out, in, cfg.Echoes)
	if err != nil {
		return err
	}
	f.times(libraryEcho, v)
	type pipe struct{ out, in io.ReadWriter }
	pipes := []pipe{{out, in}}
	for len(pipes) < 4 {
		o, i, err := stream(ctx, client, server)
		if err != nil {
			return err
		}
		pipes = append(pipes, pipe{o, i})
	}
	var wg sync.WaitGroup
	errs := make([]error, len(pipes))
	began = time.Now()
	for i, p := range pipes {
		wg.Go(func() { errs[i] = transfer(p.out, p.in, cfg.Memory/4) })
	}
	wg.Wait()
	f.rate(libraryFour, cfg.Memory/4*4, time.Since(began))
	return errors.Join(errs...)
}

// datagramBytes fits a packet of 1,200 bytes, which is before the path's size is known.
const datagramBytes = 1100

// datagrams measures the library's unreliable datagrams (RFC 9221) over sockets: what came, and the share that did not.
func datagrams(ctx context.Context, cfg CaliberConfig, f *figures) (err error) {
	var socks [2]net.PacketConn
	for i := range socks {
		if socks[i], err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			return err
		}
	}
	client, server, end, err := library(ctx, socks[0], socks[1])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	n := int(cfg.Bytes / 4 / datagramBytes)
	type result struct {
		got  int
		last time.Time
		err  error
	}
	told := make(chan result, 1)
	receive, enough := context.WithCancel(ctx)
	defer enough()
	go func() { // ends with receive, or after the last datagram; awaited below
		var r result
		next := uint64(0)
		for {
			b, err := server.ReceiveDatagram(receive)
			if err != nil {
				if receive.Err() == nil {
					r.err = err
				}
				break
			}
			number := binary.BigEndian.Uint64(b)
			if len(b) != datagramBytes || number >= uint64(n) {
				r.err = errors.New("a datagram is not one that was sent")
				break
			}
			r.got++
			r.last = time.Now()
			if next = number + 1; next == uint64(n) {
				break
			}
		}
		told <- r
	}()
	began := time.Now()
	for i := range n {
		b := make([]byte, datagramBytes)
		binary.BigEndian.PutUint64(b, uint64(i))
		if err := client.SendDatagram(b); err != nil { // waits while 32 are queued
			return err
		}
	}
	var r result
	select {
	case r = <-told:
	case <-time.After(time.Second): // the last one was lost
		enough()
		r = <-told
	}
	if r.err != nil {
		return r.err
	}
	if r.got == 0 {
		return errors.New("no datagram has come")
	}
	f.rate(libraryUnrel, int64(r.got)*datagramBytes, r.last.Sub(began))
	f.add("library, datagrams lost", "%", 100*(1-float64(r.got)/float64(n)))
	return nil
}

// library connects two ends of quic-go over two packet connections, which end closes.
func library(ctx context.Context, a, b net.PacketConn) (client, server *quic.Conn, end func() error, err error) {
	cert, err := peers.SelfSigned()
	if err != nil {
		return nil, nil, nil, errors.Join(err, a.Close(), b.Close())
	}
	const protocol = "laneway-bench"
	cfg := &quic.Config{EnableDatagrams: true, DisablePathMTUDiscovery: false}
	ta, tb := &quic.Transport{Conn: a}, &quic.Transport{Conn: b}
	end = func() error { return errors.Join(ta.Close(), tb.Close(), a.Close(), b.Close()) }
	ln, err := tb.Listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{protocol}}, cfg)
	if err == nil {
		// both ends are here
		client, err = ta.Dial(ctx, b.LocalAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}},
			cfg)
	}
	if err == nil {
		server, err = ln.Accept(ctx)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(err, end())
	}
	return client, server, end, nil
}

// stream opens a stream and takes it at the other end.
func stream(ctx context.Context, client, server *quic.Conn) (out, in io.ReadWriter, err error) {
	o, err := client.OpenStreamSync(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := o.Write([]byte{1}); err != nil {
		return nil, nil, err
	}
	i, err := server.AcceptStream(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = io.ReadFull(i, make([]byte, 1))
	return o, i, err
}
