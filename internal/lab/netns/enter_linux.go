package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread that is in the node's namespace: a socket that f itself opens, and a process that f starts,
// belong to it. Goroutines that f starts do not. f must not wait for long: the thread is held.
func (d *Node) Do(f func() error) error {
	return away(func() error {
		if err := unix.Setns(int(d.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: enter %s: %w", d.Namespace, os.NewSyscallError("setns", err))
		}
		return nil
	}, f)
}

// away runs leave, which takes its thread to another namespace or fails, then f there, and brings the thread back.
func away(leave, f func() error) (err error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("netns: %w", err)
	}
	defer home.Close()
	if err := leave(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if e := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); e != nil {
			// The goroutine stays locked, so that the thread ends with it and nobody else runs in the wrong namespace.
			err = errors.Join(err, fmt.Errorf("netns: come back: %w", os.NewSyscallError("setns", e)))
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// Dial connects from the node. address must be an IP address with a port: a name would be looked up by the host's
// means.
func (d *Node) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	if err := literal(address); err != nil {
		return nil, err
	}
	err = d.Do(func() (err error) { // a literal address is dialled by this very goroutine
		var dialer net.Dialer
		c, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen listens in the node's namespace, on an IP address with a port.
func (d *Node) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	if err := literal(address); err != nil {
		return nil, err
	}
	err = d.Do(func() (err error) {
		var lc net.ListenConfig
		l, err = lc.Listen(ctx, network, address)
		return err
	})
	return l, err
}

func literal(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err == nil && net.ParseIP(host) == nil {
		err = &net.AddrError{Err: "is not an IP address with a port", Addr: address}
	}
	return err
}

// mayUnshare tries it. The thread comes back: were it left to die in the new namespace and the first of the process, it
// would stay, and everything under /proc/self/net would be the new namespace's.
func mayUnshare() error {
	err := away(func() error { return os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_NEWNET)) },
		func() error { return nil })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM) && os.Geteuid() != 0:
		return &MissingError{What: "they need root, run it as root or with sudo", Err: err}
	case errors.Is(err, unix.EPERM):
		return &MissingError{What: "this root may not, as in a container without the capability SYS_ADMIN; run it on " +
			"the host or in a privileged container", Err: err}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return &MissingError{What: "the kernel was built without them (CONFIG_NET_NS)", Err: err}
	}
	return &MissingError{What: "the kernel refuses", Err: err}
}
