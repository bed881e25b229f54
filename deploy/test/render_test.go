package deploytest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/laneway-ai/laneway/deploy/test/internal/lab"
)

// kinds are those that may be rendered; one that is not here fails.
var kinds = map[string]func() any{
	"v1/Namespace":                            func() any { return new(core.Namespace) },
	"v1/ServiceAccount":                       func() any { return new(core.ServiceAccount) },
	"v1/Service":                              func() any { return new(core.Service) },
	"v1/ConfigMap":                            func() any { return new(core.ConfigMap) },
	"v1/PersistentVolumeClaim":                func() any { return new(core.PersistentVolumeClaim) },
	"apps/v1/Deployment":                      func() any { return new(apps.Deployment) },
	"apps/v1/DaemonSet":                       func() any { return new(apps.DaemonSet) },
	"batch/v1/Job":                            func() any { return new(batch.Job) },
	"policy/v1/PodDisruptionBudget":           func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":      func() any { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1/PodMonitor":     func() any { return new(monitoring.PodMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() any { return new(monitoring.PrometheusRule) },
}

// rendered is what one kustomization makes.
type rendered struct {
	root    string // below deploy/kubernetes
	objects []any
}

// roots are all kustomizations that can be applied, found by walking, so that a new one is tested from its first day.
func roots(t *testing.T) []string {
	t.Helper()
	var out []string
	top := lab.Deploy("kubernetes")
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "kustomization.yaml" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var k struct{ Kind string }
		if err := yaml.Unmarshal(b, &k); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if k.Kind == "Component" {
			return nil
		}
		rel, err := filepath.Rel(top, filepath.Dir(path))
		out = append(out, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"base", "node-tuning", "overlays/kind", "overlays/cluster-512",
		"overlays/two-frontends"} {
		if !slices.Contains(out, must) {
			t.Errorf("%s is missing among %v", must, out)
		}
	}
	return out
}

// render builds a kustomization and decodes every object strictly: an unknown or misspelt field fails.
func render(t *testing.T, root string) rendered {
	t.Helper()
	k := krusty.MakeKustomizer(krusty.MakeDefaultOptions())
	m, err := k.Run(filesys.MakeFsOnDisk(), lab.Deploy("kubernetes", root))
	if err != nil {
		t.Fatalf("%s: %v", root, err)
	}
	r := rendered{root: root}
	for _, res := range m.Resources() {
		gvk := res.GetGvk()
		kind := strings.TrimPrefix(gvk.Group+"/"+gvk.Version+"/"+gvk.Kind, "/")
		make, ok := kinds[kind]
		if !ok {
			t.Errorf("%s: %s %s is of a kind that this test does not know", root, kind, res.GetName())
			continue
		}
		b, err := res.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		o := make()
		if err := yaml.UnmarshalStrict(b, o, yaml.DisallowUnknownFields); err != nil {
			t.Errorf("%s: %s %s: %v", root, kind, res.GetName(), err)
			continue
		}
		r.objects = append(r.objects, o)
	}
	return r
}

func pick[T any](r rendered) []*T {
	var out []*T
	for _, o := range r.objects {
		if x, ok := o.(*T); ok {
			out = append(out, x)
		}
	}
	return out
}

// pod is a pod template with what stands around it.
type pod struct {
	name, kind string
	labels     map[string]string
	spec       core.PodSpec
	replicas   int32
}

func (r rendered) pods() []pod {
	var out []pod
	for _, d := range pick[apps.Deployment](r) {
		n := int32(1)
		if d.Spec.Replicas != nil {
			n = *d.Spec.Replicas
		}
		out = append(out, pod{d.Name, "Deployment", d.Spec.Template.Labels, d.Spec.Template.Spec, n})
	}
	for _, d := range pick[apps.DaemonSet](r) {
		out = append(out, pod{d.Name, "DaemonSet", d.Spec.Template.Labels, d.Spec.Template.Spec, 1})
	}
	for _, j := range pick[batch.Job](r) {
		n := int32(1)
		if j.Spec.Parallelism != nil {
			n = *j.Spec.Parallelism
		}
		out = append(out, pod{j.Name, "Job", j.Spec.Template.Labels, j.Spec.Template.Spec, n})
	}
	return out
}

func (r rendered) pod(t *testing.T, name string) pod {
	t.Helper()
	for _, p := range r.pods() {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("%s has no %s", r.root, name)
	return pod{}
}

func matches(selector map[string]string, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
