package procstat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mountV1 = "30 25 0:26 ROOT /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n31 25 0:27 / " +
		"/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	mountV2     = "30 25 0:26 ROOT /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
	mountHybrid = "29 25 0:25 ROOT /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n30 25 0:26 / /sys/fs/cgroup/unified " +
		"rw - cgroup2 cgroup2 rw\n"
)

// TestQuota: environment.cpus is what the control group lets the process use, with both versions, wherever the group
// is mounted.
func TestQuota(t *testing.T) {
	needLinux(t)
	mount := func(text, root string) string { return strings.Replace(text, "ROOT", root, 1) }
	cases := []struct {
		name, cgroup, mounts string
		files                map[string]string
		quota                float64 // 0 = none
		cpus                 int     // of 8 cores
	}{
		{"v2", "0::/\n", mount(mountV2, "/"), map[string]string{"cpu.max": "150000 100000\n"}, 1.5, 2},
		{"v2 without limit", "0::/\n", mount(mountV2, "/"), map[string]string{"cpu.max": "max 100000\n"}, 0, 8},
		{"v2 below a core", "0::/\n", mount(mountV2, "/"), map[string]string{"cpu.max": "20000 100000\n"}, .2, 1},
		{"v2, more than there is", "0::/\n", mount(mountV2, "/"), map[string]string{"cpu.max": "6400000 100000\n"}, 64,
			8},
		{"v2, a group above is tighter", "0::/slice/unit\n", mount(mountV2, "/"),
			map[string]string{"slice/unit/cpu.max": "400000 100000\n", "slice/cpu.max": "300000 100000\n"}, 3, 3},
		{"v2, the group is the mount", "0::/pod/box\n", mount(mountV2, "/pod/box"),
			map[string]string{"cpu.max": "400000 100000\n"}, 4, 4},
		{"v2, a group beside", "0::/pod/box2\n", mount(mountV2, "/pod/box"),
			map[string]string{"cpu.max": "400000 100000\n", "2/cpu.max": "100000 100000\n"}, 4, 4},
		{"v2, nonsense", "0::/\n", mount(mountV2, "/"), map[string]string{"cpu.max": "x\n"}, 0, 8},
		{"v1", "4:memory:/\n3:cpu,cpuacct:/box\n", mount(mountV1, "/"),
			map[string]string{"cpu/box/cpu.cfs_quota_us": "250000\n", "cpu/box/cpu.cfs_period_us": "100000\n"}, 2.5, 3},
		{"v1 without limit", "3:cpu,cpuacct:/\n", mount(mountV1, "/"), map[string]string{"cpu/cpu.cfs_quota_us": "-1\n",
			"cpu/cpu.cfs_period_us": "100000\n"}, 0, 8},
		{"v1, the group is the mount", "3:cpu,cpuacct:/docker/a\n", mount(mountV1, "/docker/a"),
			map[string]string{"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "50000\n"}, 1, 1},
		{"both, v1 has the processor", "1:cpu:/\n0::/\n", mount(mountHybrid, "/"),
			map[string]string{"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2, 2},
		{"none", "", "", nil, 0, 8},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(name, text string) {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("proc/7/cgroup", c.cgroup)
			write("proc/7/mountinfo", c.mounts)
			if err := os.Symlink("7", filepath.Join(root, "proc/self")); err != nil {
				t.Fatal(err)
			}
			for name, text := range c.files {
				write(filepath.Join("sys/fs/cgroup", name), text)
			}
			q, ok := cpuQuota(root)
			if q != c.quota || ok != (c.quota > 0) {
				t.Errorf("quota %v %v, want %v", q, ok, c.quota)
			}
			if n := cpus(8, root); n != c.cpus {
				t.Errorf("%d cores, want %d", n, c.cpus)
			}
		})
	}
}
