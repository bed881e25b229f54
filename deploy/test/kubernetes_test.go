package deploytest

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

func TestEveryOverlay(t *testing.T) {
	for _, root := range roots(t) {
		t.Run(strings.ReplaceAll(root, "/", "_"), func(t *testing.T) {
			r := render(t, root)
			for _, p := range r.pods() {
				for _, c := range append(p.spec.InitContainers, p.spec.Containers...) {
					checkContainer(t, r, p, c)
				}
				if p.kind != "DaemonSet" {
					checkRestricted(t, p)
				}
				if p.spec.EnableServiceLinks == nil || *p.spec.EnableServiceLinks {
					if p.kind != "DaemonSet" {
						t.Errorf("%s: enableServiceLinks is on: services named laneway-... would set LANEWAY_ variables", p.name)
					}
				}
				checkGrace(t, p)
			}
			checkServices(t, r)
			checkPolicies(t, r)
			checkBudgets(t, r)
			checkMonitors(t, r)
		})
	}
}

// program is the binary that an image of ours holds, "" for an image of others.
func program(image string) string {
	name, _, _ := strings.Cut(image, ":")
	if name, ok := strings.CutPrefix(name, "laneway/"); ok {
		return name
	}
	return ""
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// commandLine is what the container's program gets: its arguments with $(NAME) filled in, and its environment.
func commandLine(t *testing.T, r rendered, p pod, c core.Container) (args []string, env map[string]string) {
	t.Helper()
	env = imageEnv(t, program(c.Image))
	for _, from := range c.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			for k, v := range configMap(t, r, from.ConfigMapRef.Name) {
				env[k] = v
			}
		default:
			t.Fatalf("%s: envFrom of something else than a ConfigMap", p.name)
		}
	}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = e.Value
		case e.ValueFrom.ConfigMapKeyRef != nil:
			ref := e.ValueFrom.ConfigMapKeyRef
			v, ok := configMap(t, r, ref.Name)[ref.Key]
			if !ok {
				t.Errorf("%s: ConfigMap %s has no key %s", p.name, ref.Name, ref.Key)
			}
			env[e.Name] = v
		case e.ValueFrom.FieldRef != nil:
			v, ok := map[string]string{
				"metadata.name": p.name + "-0", "status.podIP": "10.0.0.1", "status.hostIP": "192.0.2.1",
				"metadata.annotations['batch.kubernetes.io/job-completion-index']": "0",
			}[e.ValueFrom.FieldRef.FieldPath]
			if !ok {
				t.Errorf("%s: field %s is not known here", p.name, e.ValueFrom.FieldRef.FieldPath)
			}
			env[e.Name] = v
		case e.ValueFrom.ResourceFieldRef != nil:
			q := c.Resources.Limits[core.ResourceMemory]
			if e.ValueFrom.ResourceFieldRef.Resource != "limits.memory" || q.IsZero() {
				t.Errorf("%s: %s is of a limit that is not set", p.name, e.Name)
			}
			env[e.Name] = strconv.FormatInt(q.Value(), 10)
		default:
			t.Fatalf("%s: variable %s comes from something unknown here", p.name, e.Name)
		}
	}
	for _, a := range c.Args {
		args = append(args, reference.ReplaceAllStringFunc(a, func(m string) string {
			v, ok := env[m[2:len(m)-1]]
			if !ok {
				t.Errorf("%s: %s stands for nothing", p.name, m)
			}
			return v
		}))
	}
	return args, env
}

func configMap(t *testing.T, r rendered, name string) map[string]string {
	t.Helper()
	for _, m := range pick[core.ConfigMap](r) {
		if m.Name == name {
			return m.Data
		}
	}
	t.Errorf("there is no ConfigMap %s", name)
	return nil
}

func checkContainer(t *testing.T, r rendered, p pod, c core.Container) {
	t.Helper()
	if !strings.Contains(path.Base(c.Image), ":") {
		t.Errorf("%s: image %s has no tag", p.name, c.Image)
	}
	for _, m := range c.VolumeMounts {
		found := false
		for _, v := range p.spec.Volumes {
			found = found || v.Name == m.Name
		}
		if !found {
			t.Errorf("%s: volume %s is mounted and not declared", p.name, m.Name)
		}
	}
	prog := program(c.Image)
	if prog == "" {
		return
	}
	if len(c.Command) > 0 {
		t.Errorf("%s: command %v: the images have an entry point", p.name, c.Command)
	}
	args, env := commandLine(t, r, p, c)
	acceptable(t, p.name, prog, args, env)
	if p.kind != "Deployment" {
		return
	}

	// Ports: what the program will listen on by its own word is what is declared.
	flags := settings(t, prog, args, env)
	declared := make(map[string]bool)
	names := make(map[string]string)
	for _, port := range c.Ports {
		proto := port.Protocol
		if proto == "" {
			proto = core.ProtocolTCP
		}
		key := string(proto) + "/" + strconv.Itoa(int(port.ContainerPort))
		if declared[key] {
			t.Errorf("%s: port %s is declared twice", p.name, key)
		}
		declared[key] = true
		names[port.Name] = key
	}
	want := listens(t, prog, flags)
	for key := range want {
		if !declared[key] {
			t.Errorf("%s listens on %s, which is not among its ports", p.name, key)
		}
	}
	for key := range declared {
		if !want[key] {
			t.Errorf("%s declares the port %s, on which it does not listen", p.name, key)
		}
	}
	for what, probe := range map[string]*core.Probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			t.Errorf("%s has no %s probe over HTTP", p.name, what)
			continue
		}
		if port := resolve(probe.HTTPGet.Port, names); port != "TCP/"+portOf(t, flags["admin-addr"]) {
			t.Errorf("%s: the %s probe asks port %s, the admin address is %s", p.name, what, port, flags["admin-addr"])
		}
		if want := map[string]string{"readiness": "/readyz", "liveness": "/livez"}[what]; probe.HTTPGet.Path != want {
			t.Errorf("%s: the %s probe asks %s, not %s", p.name, what, probe.HTTPGet.Path, want)
		}
	}
}

func resolve(port intstr.IntOrString, names map[string]string) string {
	if port.Type == intstr.String {
		return names[port.StrVal]
	}
	return "TCP/" + strconv.Itoa(port.IntValue())
}

// checkRestricted is what the namespace's pod security asks for, and no writable root.
func checkRestricted(t *testing.T, p pod) {
	t.Helper()
	s := p.spec.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil ||
		s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: not restricted: runAsNonRoot and seccompProfile RuntimeDefault are asked for", p.name)
	}
	for _, c := range p.spec.Containers {
		x := c.SecurityContext
		if x == nil || x.AllowPrivilegeEscalation == nil || *x.AllowPrivilegeEscalation ||
			x.ReadOnlyRootFilesystem == nil || !*x.ReadOnlyRootFilesystem ||
			x.Capabilities == nil || len(x.Capabilities.Drop) != 1 || x.Capabilities.Drop[0] != "ALL" ||
			len(x.Capabilities.Add) > 0 {
			t.Errorf("%s/%s: not restricted: no escalation, a read-only root and no capabilities are asked for", p.name,
				c.Name)
		}
		if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s/%s: a memory limit and a CPU request are missing", p.name, c.Name)
		}
	}
}

// checkGrace: what a program may take to leave is below what the kubelet gives it.
func checkGrace(t *testing.T, p pod) {
	t.Helper()
	for _, c := range p.spec.Containers {
		var need time.Duration
		for _, a := range c.Args {
			for _, flag := range []string{"--drain-grace=", "--drain-timeout="} {
				if v, ok := strings.CutPrefix(a, flag); ok {
					d, err := time.ParseDuration(v)
					if err != nil {
						t.Errorf("%s: %s: %v", p.name, a, err)
					}
					need += d
				}
			}
		}
		if need == 0 {
			continue
		}
		need += leaving
		if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
			need += time.Duration(l.PreStop.Sleep.Seconds) * time.Second
		}
		if g := p.spec.TerminationGracePeriodSeconds; g == nil || time.Duration(*g)*time.Second < need {
			t.Errorf("%s: the grace period is shorter than the %v that leaving may take", p.name, need)
		}
	}
}

func checkServices(t *testing.T, r rendered) {
	t.Helper()
	for _, s := range pick[core.Service](r) {
		found := false
		for _, p := range r.pods() {
			if !matches(s.Spec.Selector, p.labels) {
				continue
			}
			found = true
			for _, port := range s.Spec.Ports {
				if !hasPort(p, port.TargetPort) {
					t.Errorf("service %s: target port %s is not a port of %s", s.Name, port.TargetPort.String(), p.name)
				}
			}
		}
		if !found {
			t.Errorf("service %s selects nothing", s.Name)
		}
	}
}

func hasPort(p pod, port intstr.IntOrString) bool {
	for _, c := range p.spec.Containers {
		for _, have := range c.Ports {
			if port.Type == intstr.String && have.Name == port.StrVal || port.Type == intstr.Int &&
				have.ContainerPort == port.IntVal {
				return true
			}
		}
	}
	return false
}

// checkPolicies: every pod that talks is under a policy; frontends may reach every lane port of the workers, and the
// workers let them.
func checkPolicies(t *testing.T, r rendered) {
	t.Helper()
	policies := pick[networking.NetworkPolicy](r)
	if len(policies) == 0 {
		return
	}
	worker, frontend := r.pod(t, "laneway-worker"), r.pod(t, "laneway-frontend")
	allowed := func(subject, peer pod, egress bool) map[string]bool {
		out := make(map[string]bool)
		for _, n := range policies {
			if !matches(n.Spec.PodSelector.MatchLabels, subject.labels) {
				continue
			}
			each := func(peers []networking.NetworkPolicyPeer, ports []networking.NetworkPolicyPort) {
				for _, x := range peers {
					if x.PodSelector == nil || x.NamespaceSelector != nil || !matches(x.PodSelector.MatchLabels,
						peer.labels) {
						continue
					}
					for _, port := range ports {
						proto := core.ProtocolTCP
						if port.Protocol != nil {
							proto = *port.Protocol
						}
						last := port.Port.IntVal
						if port.EndPort != nil {
							last = *port.EndPort
						}
						for n := port.Port.IntVal; n <= last; n++ {
							out[string(proto)+"/"+strconv.Itoa(int(n))] = true
						}
					}
				}
			}
			if egress {
				for _, e := range n.Spec.Egress {
					each(e.To, e.Ports)
				}
			} else {
				for _, i := range n.Spec.Ingress {
					each(i.From, i.Ports)
				}
			}
		}
		return out
	}
	in, out := allowed(worker, frontend, false), allowed(frontend, worker, true)
	lanes := 0
	for _, c := range worker.spec.Containers {
		for _, port := range c.Ports {
			if port.Name == "admin" {
				continue
			}
			lanes++
			proto := port.Protocol
			if proto == "" {
				proto = core.ProtocolTCP
			}
			key := string(proto) + "/" + strconv.Itoa(int(port.ContainerPort))
			if !in[key] || !out[key] {
				t.Errorf("lane port %s: workers let frontends in: %v, frontends may go out: %v", key, in[key], out[key])
			}
		}
	}
	if lanes == 0 || len(in) != lanes || len(out) != lanes {
		t.Errorf("the workers have %d lane ports, the policies open %d in and %d out", lanes, len(in), len(out))
	}
	for _, p := range r.pods() {
		if p.name == "laneway-load-merge" {
			continue // it talks to nobody
		}
		covered := false
		for _, n := range policies {
			covered = covered || matches(n.Spec.PodSelector.MatchLabels, p.labels)
		}
		if !covered {
			t.Errorf("%s is under no network policy", p.name)
		}
	}
}

// checkBudgets: a budget selects a deployment and lets a node be drained.
func checkBudgets(t *testing.T, r rendered) {
	t.Helper()
	for _, b := range pick[policy.PodDisruptionBudget](r) {
		found := false
		for _, p := range r.pods() {
			if !matches(b.Spec.Selector.MatchLabels, p.labels) {
				continue
			}
			found = true
			if m := b.Spec.MinAvailable; m != nil && int32(m.IntValue()) >= p.replicas {
				t.Errorf("budget %s wants %s of %d pods: no node could ever be drained", b.Name, m.String(), p.replicas)
			}
		}
		if !found {
			t.Errorf("budget %s selects nothing", b.Name)
		}
	}
}

func checkMonitors(t *testing.T, r rendered) {
	t.Helper()
	jobs := make(map[string]bool)
	for _, m := range pick[monitoring.ServiceMonitor](r) {
		for _, s := range pick[core.Service](r) {
			if !matches(m.Spec.Selector.MatchLabels, s.Labels) {
				continue
			}
			jobs[s.Labels[m.Spec.JobLabel]] = true
			for _, e := range m.Spec.Endpoints {
				found := false
				for _, port := range s.Spec.Ports {
					found = found || port.Name == e.Port
				}
				if !found || e.Path != "/metrics" {
					t.Errorf("monitor %s: port %s of %s, path %s", m.Name, e.Port, s.Name, e.Path)
				}
			}
		}
	}
	for _, m := range pick[monitoring.PodMonitor](r) {
		for _, p := range r.pods() {
			if !matches(m.Spec.Selector.MatchLabels, p.labels) {
				continue
			}
			jobs[p.labels[m.Spec.JobLabel]] = true
			for _, e := range m.Spec.PodMetricsEndpoints {
				if e.Port == nil || !hasPort(p, intstr.FromString(*e.Port)) || e.Path != "/metrics" {
					t.Errorf("monitor %s: port %v, path %s", m.Name, e.Port, e.Path)
				}
			}
		}
	}
	if len(pick[monitoring.PrometheusRule](r)) > 0 && (!jobs["laneway-frontend"] || !jobs["laneway-worker"] ||
		len(jobs) != 2) {
		t.Errorf("the rules speak of the jobs laneway-frontend and laneway-worker, scraped are %v", jobs)
	}
}
