package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/laneway-ai/laneway/transport"
)

// check is what a run would refuse before it asks anybody else: files, and ports that exclude each other.
func (f *flags) check() error {
	s, err := f.settings()
	if err != nil {
		return err
	}
	err = errors.Join(s.disco.Etcd.Validate(), s.disco.NATS.Validate())
	if samePort(s.httpAddr, s.adminAddr) {
		err = errors.Join(err, fmt.Errorf("--http-addr %s and --admin-addr %s are one port: give each its own",
			s.httpAddr, s.adminAddr))
	}
	log := slog.New(slog.DiscardHandler)
	if s.http.cert != "" {
		_, cerr := newCertificate(s.http.cert, s.http.key, log)
		err = errors.Join(err, cerr)
	}
	if s.plane.TLSCA != "" {
		id, ierr := transport.NewIdentity()
		if ierr != nil {
			return errors.Join(err, ierr)
		}
		ts, terr := s.plane.Transports(id, log) // reads the files
		err = errors.Join(err, terr)
		for _, t := range ts {
			err = errors.Join(err, t.Close())
		}
	}
	return err
}

// samePort says whether two listeners at these addresses would be in each other's way.
func samePort(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || every(hostA) || every(hostB)
}

// every says whether a host is all addresses of this machine.
func every(host string) bool {
	if host == "" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}
