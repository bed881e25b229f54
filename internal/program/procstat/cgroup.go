package procstat

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// CPUs is how many cores this process may use at once: those that it may run on, or fewer where its control group has
// a quota (rounded up).
func CPUs() int { return cpus(runtime.NumCPU(), "/") }

func cpus(cores int, root string) int {
	if q, ok := cpuQuota(root); ok {
		return max(1, min(cores, int(math.Ceil(q))))
	}
	return cores
}

// CPUQuota is how many cores' worth of time the control groups of this process (v1 or v2) let it use, false when they
// set no limit. The Go runtime sets GOMAXPROCS by the quota of the process's own group alone, to 2 at least; here the
// groups above it count too, and a fraction is one.
func CPUQuota() (cores float64, ok bool) { return cpuQuota("/") }

// cpuQuota finds the quota of the process whose file system is at root.
func cpuQuota(root string) (least float64, ok bool) {
	fs, err := procfs.NewFS(filepath.Join(root, procfs.DefaultMountPoint))
	if err != nil {
		return 0, false
	}
	self, err := fs.Self()
	if err != nil {
		return 0, false
	}
	groups, err := self.Cgroups()
	if err != nil {
		return 0, false
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return 0, false
	}
	for _, g := range groups {
		v2 := g.HierarchyID == 0
		if !v2 && !slices.Contains(g.Controllers, "cpu") {
			continue
		}
		for _, m := range mounts {
			if _, cpu := m.SuperOptions["cpu"]; m.FSType == "cgroup2" != v2 || m.FSType != "cgroup2" &&
				(m.FSType != "cgroup" || !cpu) {
				continue
			}
			for dir := belowMount(m.Root, g.Path); ; dir = path.Dir(dir) {
				if q, limited := quotaIn(filepath.Join(root, m.MountPoint, dir), v2); limited && (!ok || q < least) {
					least, ok = q, true
				}
				if dir == "/" {
					break
				}
			}
		}
	}
	return least, ok
}

// belowMount is where a group is within a mount that shows the tree from mountRoot on. A group outside of what is
// mounted is seen at the mount's top: so it is in a container that was given its own group as the mount.
func belowMount(mountRoot, group string) string {
	rest, under := strings.CutPrefix(path.Clean("/"+group), strings.TrimSuffix(mountRoot, "/"))
	if !under || rest != "" && rest[0] != '/' {
		return "/"
	}
	return path.Clean("/" + rest)
}

// quotaIn reads the limit of one group, false when it has none.
func quotaIn(dir string, v2 bool) (cores float64, ok bool) {
	read := func(name string) []string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil
		}
		return strings.Fields(string(b))
	}
	var f []string
	if v2 {
		f = read("cpu.max") // "max 100000" or "150000 100000"
	} else {
		f = append(read("cpu.cfs_quota_us"), read("cpu.cfs_period_us")...) // -1 without a limit
	}
	if len(f) != 2 {
		return 0, false
	}
	quota, err1 := strconv.ParseInt(f[0], 10, 64)
	period, err2 := strconv.ParseInt(f[1], 10, 64)
	if err1 != nil || err2 != nil || quota <= 0 || period <= 0 {
		return 0, false
	}
	return float64(quota) / float64(period), true
}
