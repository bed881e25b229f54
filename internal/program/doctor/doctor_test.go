package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-ai/laneway/discovery"
	"github.com/laneway-ai/laneway/discovery/etcd"
	"github.com/laneway-ai/laneway/internal/lab/devserver"
	"github.com/laneway-ai/laneway/internal/lab/devserver/devtest"
	"github.com/laneway-ai/laneway/responseplane"
	"github.com/laneway-ai/laneway/transport"
)

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// etcdClientOf is the tests' own view of a server.
func etcdClientOf(t *testing.T, url, user, password string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Username: user, Password: password,
		DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWorkerOnGoodGroundLeavesNothing(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t)
	s := settings("quic", "tls")
	r := run(t, Config{Worker: true, Plane: s, Discovery: at(e.Endpoints()[0], n.URL()),
		Listen: map[string]string{"admin-addr": "127.0.0.1:0"}})
	r.failures(t)
	r.want(t, OK, 1, "etcd 127.0.0.1", "version 3.")
	r.want(t, OK, 1, "nats 127.0.0.1", "version 2.", "1MiB")
	r.want(t, OK, 1, "etcd rights")
	r.want(t, OK, 1, "nats rights")
	r.want(t, OK, 1, "quic endpoints", "4 ports")
	r.want(t, OK, 1, "tls endpoints", "4 ports")
	r.want(t, OK, 1, "quic receive buffer", "granted the 64KiB")
	r.want(t, Warn, 1, "advertised address", "loopback")
	r.want(t, OK, 1, "open files")
	c := etcdClientOf(t, e.Endpoints()[0], "", "")
	if got, err := c.Get(within(t), "", clientv3.WithPrefix()); err != nil || got.Count != 0 ||
		got.Header.Revision != 1 {
		t.Errorf("etcd holds %d keys at revision %d after it, %v", got.Count, got.Header.Revision, err)
	}
	if got, err := c.Leases(within(t)); err != nil || len(got.Leases) != 0 {
		t.Errorf("leases are left: %v, %v", got, err)
	}
}

func TestAbsentServers(t *testing.T) {
	r := run(t, Config{Plane: settings("tls"), Discovery: at(dead(t, "http"), dead(t, "nats"))})
	r.failures(t, "etcd 127.0.0.1", "nats 127.0.0.1")
	r.want(t, Fail, 2, "refused")
	r = run(t, Config{Plane: settings("tls"), DiscoveryErr: os.ErrNotExist})
	r.failures(t, "discovery")
}

// TestOneMemberOfThree: the others do without a member that is silent.
func TestOneMemberOfThree(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t)
	d := at(dead(t, "http"), dead(t, "nats")+","+n.URL())
	d.Etcd.Endpoints = append(d.Etcd.Endpoints, e.Endpoints()...)
	r := run(t, Config{Worker: true, Plane: settings("tls"), Discovery: d})
	r.failures(t)
	r.want(t, Warn, 1, "etcd 127.0.0.1", "refused")
	r.want(t, Warn, 1, "nats 127.0.0.1", "refused")
}

// TestEtcdRights: a user that may only read is enough for a frontend and not for a worker, and a wrong password is said
// to be one.
func TestEtcdRights(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t)
	root := etcdClientOf(t, e.Endpoints()[0], "", "")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t)
	must(root.UserAdd(ctx, "root", "r"))
	must(root.RoleAdd(ctx, "root"))
	must(root.UserGrantRole(ctx, "root", "root"))
	must(root.UserAdd(ctx, "reader", "secret"))
	must(root.RoleAdd(ctx, "read"))
	p := "/laneway/v1/doctor-test/workers/"
	must(root.RoleGrantPermission(ctx, "read", p, clientv3.GetPrefixRangeEnd(p),
		clientv3.PermissionType(clientv3.PermRead)))
	must(root.UserGrantRole(ctx, "reader", "read"))
	must(root.AuthEnable(ctx))
	d := at(e.Endpoints()[0], n.URL())
	d.Etcd.Username, d.Etcd.Password = "reader", "secret"
	run(t, Config{Plane: settings("tls"), Discovery: d}).failures(t)
	r := run(t, Config{Worker: true, Plane: settings("tls"), Discovery: d})
	r.failures(t, "etcd rights")
	if f := r.find(Fail, "user reader may not"); len(f) != 1 ||
		!strings.Contains(f[0].Fix, "grant-permission ROLE readwrite --prefix=true "+p) {
		t.Errorf("%+v", f)
	}
	d.Etcd.Password = "wrong"
	r = run(t, Config{Plane: settings("tls"), Discovery: d})
	if len(r.find(Fail, "password is wrong")) == 0 {
		t.Error("a wrong password is not named")
		r.log(t)
	}
	d = at(e.Endpoints()[0], n.URL())
	d.Etcd.Namespace = "elsewhere"
	d.Etcd.Username, d.Etcd.Password = "reader", "secret"
	r = run(t, Config{Plane: settings("tls"), Discovery: d})
	r.failures(t, "etcd")
	r.want(t, Fail, 1, "user reader may not do that below /laneway/v1/elsewhere/workers/")
}

func TestNATSPassword(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t, devserver.Options{User: "me", Password: "secret"})
	d := at(e.Endpoints()[0], n.URL())
	d.NATS.User, d.NATS.Password = "me", "secret"
	run(t, Config{Worker: true, Plane: settings("tls"), Discovery: d}).failures(t)
	d.NATS.Password = "wrong"
	r := run(t, Config{Worker: true, Plane: settings("tls"), Discovery: d})
	r.failures(t, "nats")
	if strings.Contains(fmt.Sprint(r.Findings), "wrong") {
		t.Error("the report holds the password")
	}
}

func TestSmallPayloadIsWarnedAbout(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t, devserver.Options{MaxPayload: 4096})
	r := run(t, Config{Plane: settings("tls"), Discovery: at(e.Endpoints()[0], n.URL())})
	r.failures(t)
	r.want(t, Warn, 1, "nats", "at most 4KiB")
}

// freeRange finds n UDP and TCP ports in a row.
func freeRange(t *testing.T, n int) int {
	t.Helper()
	for first := 21000 + os.Getpid()%5000; first < 31000; first += n {
		free := true
		for p := first; p < first+n && free; p++ {
			u, err := net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(p))
			if err == nil {
				u.Close()
			}
			l, lerr := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(p))
			if lerr == nil {
				l.Close()
			}
			free = err == nil && lerr == nil
		}
		if free {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

// TestTakenPort: the port of the range that another process has is named, by plane, and so is a taken admin address.
func TestTakenPort(t *testing.T) {
	first := freeRange(t, 4)
	taken, err := net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(first+2))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	admin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	s := settings("quic", "tls")
	s.BindAddr = "127.0.0.1:" + strconv.Itoa(first)
	r := run(t, Config{Worker: true, Plane: s, DiscoveryErr: os.ErrNotExist,
		Listen: map[string]string{"admin-addr": admin.Addr().String()}})
	r.failures(t, "--admin-addr "+admin.Addr().String(), fmt.Sprintf("quic port %d", first+2), "discovery")
	r.want(t, OK, 1, fmt.Sprintf("tls ports: %d to %d can be bound", first, first+3))
	if f := r.find(Fail, "quic port"); len(f) != 1 || !strings.Contains(f[0].Fix, fmt.Sprintf("ss -ulpn sport = :%d",
		first+2)) {
		t.Errorf("%+v", f)
	}
}

// TestPortsOfWorkers: a frontend dials every port of every process and says which one is silent, which one nobody has,
// and where another node answers.
func TestPortsOfWorkers(t *testing.T) {
	e, n := devtest.Etcd(t), devtest.NATS(t)
	id, err := transport.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s := settings("quic", "tls")
	ts, err := s.Transports(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range ts {
		defer tr.Close()
	}
	wc := s.Worker(id, ts, nil)
	wc.Name = "host-1"
	w, err := responseplane.NewWorker(wc)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	reg, err := etcd.New(t.Context(), at(e.Endpoints()[0], "").Etcd)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	record := func(id string, node discovery.Node) discovery.Worker {
		return discovery.Worker{Schema: discovery.Schema, ID: id, Models: []string{"m"}, Node: node}
	}
	first, err := reg.Register(t.Context(), []discovery.Worker{record("a-0", w.Descriptor()),
		record("a-1", w.Descriptor())})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Plane: s, Discovery: at(e.Endpoints()[0], n.URL())}
	r := run(t, cfg)
	r.failures(t)
	r.want(t, OK, 1, "workers", "2 in 1 processes")
	r.want(t, OK, 1, "worker process host-1, quic", "4 ports answer")
	r.want(t, OK, 1, "worker process host-1, tls", "4 ports answer")

	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // as a firewall that drops
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed := closedPort(t)
	node := w.Descriptor()
	node.Planes = []discovery.Plane{
		{Name: "quic", Endpoints: append(node.Planes[0].Endpoints[:3:3], silent.LocalAddr().String())},
		{Name: "tls", Endpoints: append(node.Planes[1].Endpoints[:3:3], closed)},
	}
	other := node
	other.ID, other.Name = strings.Repeat("ab", 16), "host-2"
	other.Planes = []discovery.Plane{{Name: "tls", Endpoints: node.Planes[1].Endpoints[:1]}}
	foreign := other
	foreign.ID, foreign.Name = strings.Repeat("cd", 16), "host-3"
	foreign.Planes = []discovery.Plane{{Name: "tcp", Endpoints: []string{closed}}}
	if err := first.Withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Register(t.Context(), []discovery.Worker{record("a-0", node), record("b-0", other),
		record("c-0", foreign)}); err != nil {
		t.Fatal(err)
	}
	r = run(t, cfg)
	r.failures(t, "worker process host-1, quic "+silent.LocalAddr().String(), "worker process host-1, tls "+closed,
		"worker process host-2, tls "+node.Planes[1].Endpoints[0], "worker process host-3")
	r.want(t, Fail, 1, "host-1, quic", "no answer (6 of the process's 8 ports answer)")
	r.want(t, Fail, 1, "host-1, tls", "refused")
	r.want(t, Fail, 1, "host-2", "answered as node "+w.Descriptor().ID)
	r.want(t, Fail, 1, "host-3", "listens on tcp, this program uses quic, tls")
	r.want(t, OK, 1, "host-1, quic", "3 ports answer")
}

func TestReportsForPeopleAndPrograms(t *testing.T) {
	r := &Report{Program: "frontend"}
	r.ok("a", "good")
	r.warn("b", "not\nso good", "do this")
	if r.Err() != nil {
		t.Errorf("a warning is an error: %v", r.Err())
	}
	r.fail("c", "bad", "")
	var people, programs bytes.Buffer
	if err := r.Write(&people); err != nil {
		t.Fatal(err)
	}
	if want := "ok    a: good\nwarn  b: not so good\n      fix: do this\nfail  c: bad\n3 checks: 1 ok, 1 warnings, 1 " +
		"failed\n"; people.String() != want {
		t.Errorf("got\n%s", &people)
	}
	if err := r.WriteJSON(&programs); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(programs.Bytes(), &back); err != nil || back.Failed != 1 || back.Warned != 1 ||
		len(back.Findings) != 3 || back.Findings[1].Fix != "do this" {
		t.Errorf("%+v, %v", back, err)
	}
}
