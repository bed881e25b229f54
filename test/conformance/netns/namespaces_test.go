package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-ai/laneway/internal/lab/netns"
)

// patience bounds waits that have nothing to do with what is measured.
const patience = 60 * time.Second

func makeNetwork(t *testing.T, cfg netns.Config) *netns.Network {
	t.Helper()
	n, err := netns.Make(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// names are the namespaces that ip netns knows and that begin with a prefix.
func names(t *testing.T, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			out = append(out, e.Name())
		}
	}
	return out
}

// TestNodesReachEachOther: TCP over both families between two nodes, at the MTU that was asked for, and the host sees
// none of it.
func TestNodesReachEachOther(t *testing.T) {
	need(t)
	before := interfaces(t)
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	n := makeNetwork(t, netns.Config{Nodes: []string{"a", "b"}, MTU: 1400, IPv6: true})
	a, b := n.Node("a"), n.Node("b")
	for _, at := range []string{a.Addr4.String(), a.Addr6.String()} {
		l, err := a.Listen(t.Context(), "tcp", net.JoinHostPort(at, "0"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err := b.Dial(ctx, "tcp", l.Addr().String())
		if err != nil {
			t.Fatalf("from b to %s: %v", l.Addr(), err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := s.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); got != b.Addr4 && got != b.Addr6 {
			t.Errorf("a is talked to by %s, b has %s and %s", got, b.Addr4, b.Addr6)
		}
		go func() { _, _ = c.Write([]byte("hello")); c.Close() }()
		if got, err := io.ReadAll(s); err != nil || string(got) != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
		d := net.Dialer{Timeout: 300 * time.Millisecond}
		if c, err := d.DialContext(ctx, "tcp", l.Addr().String()); err == nil {
			c.Close()
			t.Errorf("the host's own network reaches %s", l.Addr())
		}
	}
	if err := b.Do(func() error {
		i, err := net.InterfaceByName(b.Interface)
		if err == nil && i.MTU != 1400 {
			err = fmt.Errorf("MTU %d", i.MTU)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if after := interfaces(t); !slices.Equal(before, after) {
		t.Errorf("the host had the interfaces %v and has %v", before, after)
	}
	if now, err := os.Readlink("/proc/self/ns/net"); now != home {
		t.Errorf("the process was in %s and is in %s, %v", home, now, err)
	}
	if _, err := b.Dial(t.Context(), "tcp", "localhost:80"); err == nil {
		t.Error("a name was dialled, which the host would look up")
	}
}

func interfaces(t *testing.T) (names []string) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names
}

// TestForward: a server of the host's network is reached from a node, both directions end in an orderly way, and Close
// ends what is open.
func TestForward(t *testing.T) {
	need(t)
	n := makeNetwork(t, netns.Config{Nodes: []string{"a"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := n.Hub().Forward(t.Context(), l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	connect := func() (client, server net.Conn) {
		t.Helper()
		client, err := n.Node("a").Dial(t.Context(), "tcp", f.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); server.Close() })
		deadline := time.Now().Add(patience)
		_, _ = client.SetDeadline(deadline), server.SetDeadline(deadline)
		return client, server
	}
	client, server := connect()
	_, _ = client.Write([]byte("question"))
	_ = client.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(server); err != nil || string(got) != "question" {
		t.Fatalf("the server got %q, %v", got, err)
	}
	_, _ = server.Write([]byte("answer")) // after the client's half has ended
	server.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
		t.Errorf("the client got %q, %v", got, err)
	}
	client, _ = connect()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if f.Open() != 0 {
		t.Errorf("%d connections are open after Close", f.Open())
	}
	if _, err := client.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection outlived Close: %v", err)
	}
	l.Close()
}

// TestCloseTellsOfProcesses: a process that still runs in a namespace is named, and the name is gone all the same.
func TestCloseTellsOfProcesses(t *testing.T) {
	need(t)
	n, err := netns.Make(t.Context(), netns.Config{Nodes: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := n.Node("a").Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := n.Close(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d sleep", cmd.Process.Pid)) {
		t.Errorf("error %v", err)
	}
	if left := names(t, n.Node("a").Namespace); len(left) > 0 {
		t.Errorf("names are left: %v", left)
	}
	if err := n.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

// TestMakeThatIsCutShort leaves nothing, at whatever point it is.
func TestMakeThatIsCutShort(t *testing.T) {
	need(t)
	prefix := fmt.Sprintf("laneway-%d-", os.Getpid())
	cut := 0
	for after := time.Duration(0); ; after += 3 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		n, err := netns.Make(ctx, netns.Config{Nodes: []string{"a", "b", "c"}})
		cancel()
		if err == nil {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		} else if cut++; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: %v", after, err)
		}
		if left := names(t, prefix); len(left) > 0 {
			t.Fatalf("cut after %s, these are left: %v", after, left)
		}
		if err == nil {
			break
		}
	}
	if cut < 3 {
		t.Errorf("it was cut %d times, which tells little", cut)
	}
}

const makerEnv = "NETNS_TEST_MAKER"

// playMaker makes namespaces, says so and waits to be killed.
func playMaker() int {
	n, err := netns.Make(context.Background(), netns.Config{Nodes: []string{"a"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(n.Node("a").Namespace)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = n.Close()
	return 1
}

// TestNamespacesOfKilledMaker: they stay while the maker lives, and the next maker removes them when it is gone, but
// nobody else's.
func TestNamespacesOfKilledMaker(t *testing.T) {
	need(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), makerEnv+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var name string
	if _, err := fmt.Fscanln(out, &name); err != nil {
		t.Fatalf("the maker did not come up: %v, %v", err, cmd.Wait())
	}
	mine := makeNetwork(t, netns.Config{Nodes: []string{"a"}}).Node("a").Namespace
	if len(names(t, name)) != 1 {
		t.Error("namespaces of a maker that lives were removed")
	}
	if err := unix.Kill(cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if len(names(t, name)) != 1 {
		t.Fatal("the killed maker left nothing, so this shows nothing")
	}
	removed, err := netns.RemoveStale(t.Context())
	if err != nil || !slices.Contains(removed, name) || !slices.Contains(removed, strings.TrimSuffix(name, "a")+"hub") {
		t.Errorf("removed %v, %v", removed, err)
	}
	if left := names(t, name); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if len(names(t, mine)) != 1 || slices.Contains(removed, mine) {
		t.Error("namespaces of this process were removed")
	}
}
