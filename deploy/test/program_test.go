package deploytest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
	"github.com/laneway-ai/laneway/transport/transporttest"
)

// leaving is what a program may take to leave besides its own flags: 5 s to leave the registry, 5 s for the
// acknowledgement of the last ends, 2 s of admin answers.
const leaving = 12 * time.Second

// acceptable runs the program with --check-config: flags, values and variables that it does not take fail.
func acceptable(t *testing.T, where, prog string, args []string, env map[string]string) {
	t.Helper()
	var list []string
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	if code, _, errs := lab.Run(t, list, bin(prog), append(withSecret(t, args), "--check-config")...); code != 0 {
		t.Errorf("%s: %s %s: exit code %d\n%s", where, prog, strings.Join(args, " "), code, errs)
	}
}

// secret is where the certificates of the component tls are mounted.
const secret = "/etc/laneway/tls/"

// withSecret gives a command line that reads the secret files that it can read here, since --check-config reads them
// too.
func withSecret(t *testing.T, args []string) []string {
	t.Helper()
	args = slices.Clone(args)
	if !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, secret) }) {
		return args
	}
	ca := transporttest.NewCA(t, "deploy")
	cert, key := ca.Issue(t, "tls", transporttest.Leaf{Name: "spiffe://laneway/test"})
	files := strings.NewReplacer(secret+"ca.crt", ca.File, secret+"tls.crt", cert, secret+"tls.key", key)
	for i := range args {
		args[i] = files.Replace(args[i])
	}
	return args
}

// settings are the flags in force for a command line that was found acceptable: given as flag, else by variable, else
// the default that the program's help states.
func settings(t *testing.T, prog string, args []string, env map[string]string) map[string]string {
	t.Helper()
	code, help, _ := lab.Run(t, nil, bin(prog), "--help")
	if code != 0 {
		t.Fatalf("%s --help: exit code %d", prog, code)
	}
	out := make(map[string]string)
	var name string
	for line := range strings.Lines(help) {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, "--"); strings.HasPrefix(line, "-") && i >= 0 {
			name, _, _ = strings.Cut(line[i+2:], " ")
		}
		if v, ok := strings.CutPrefix(line, "[default "); ok && name != "" {
			out[name], _, _ = strings.Cut(v, ";")
		}
		if strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]") && name != "" {
			variable := line[strings.LastIndex(line, " ")+1 : len(line)-1]
			if v := env[variable]; v != "" {
				out[name] = v
			}
		}
	}
	for _, a := range args {
		if k, v, ok := strings.Cut(strings.TrimPrefix(a, "--"), "="); ok && strings.HasPrefix(a, "--") {
			out[k] = v
		}
	}
	if out["admin-addr"] == "" && prog != "loadgen" {
		t.Fatalf("the help of %s could not be read: %v", prog, out)
	}
	return out
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// listens are the ports of a program with these settings, as PROTOCOL/PORT.
func listens(t *testing.T, prog string, flags map[string]string) map[string]bool {
	t.Helper()
	out := map[string]bool{"TCP/" + portOf(t, flags["admin-addr"]): true}
	switch prog {
	case "frontend":
		out["TCP/"+portOf(t, flags["http-addr"])] = true
	case "mockworker":
		first, err := strconv.Atoi(portOf(t, flags["bind-addr"]))
		if err != nil || first == 0 {
			t.Errorf("--bind-addr %s is no fixed port: no policy or firewall could name it", flags["bind-addr"])
		}
		n, err := strconv.Atoi(flags["server-endpoints"])
		if err != nil {
			t.Fatal(err)
		}
		for _, plane := range strings.Split(flags["response-plane"], ",") {
			proto := map[string]string{"quic": "UDP", "tls": "TCP", "tcp": "TCP"}[plane]
			if proto == "" {
				t.Fatalf("plane %q", plane)
			}
			for i := range n {
				out[proto+"/"+strconv.Itoa(first+i)] = true
			}
		}
	}
	return out
}

// TestListensIsTrue holds listens against a program that runs.
func TestListensIsTrue(t *testing.T) {
	c := startCluster(t, clusterOptions{processes: 1, workersEach: 1})
	w := c.workers[0]
	first := c.firstPorts[0]
	want := listens(t, "mockworker", settings(t, "mockworker", []string{"--admin-addr=" + w.Admin,
		"--bind-addr=127.0.0.1:" + strconv.Itoa(first), "--server-endpoints=2"}, nil))
	for key := range want {
		proto, port, _ := strings.Cut(key, "/")
		if !occupied(t, proto, port) {
			t.Errorf("the worker does not listen on %s", key)
		}
	}
	if len(want) != 5 {
		t.Errorf("%v", want)
	}
}

func occupied(t *testing.T, proto, port string) bool {
	t.Helper()
	if proto == "TCP" {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, 5*time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	p, err := net.ListenPacket("udp", "127.0.0.1:"+port)
	if err == nil {
		p.Close()
	}
	return err != nil
}
