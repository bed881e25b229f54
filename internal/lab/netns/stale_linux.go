package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// namePrefix begins every name; the maker's process id and start time follow: laneway-4711-180023-1-frontend.
const namePrefix = "laneway-"

var ownName = regexp.MustCompile(`^` + namePrefix + `([0-9]+)-([0-9]+)-[0-9]+-[a-z0-9-]+$`)

// owner is how a process stands in names. With its start time, in clock ticks since the host's, another process that
// has the id later is not taken for it.
func owner(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("netns: %w", err)
	}
	// The second field is a name in brackets that may hold anything.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	const state, start = 0, 19 // the third and the 22nd field of all
	if len(f) <= start {
		return "", fmt.Errorf("netns: /proc/%d/stat has %d fields behind the name", pid, len(f))
	}
	if f[state] == "Z" || f[state] == "X" { // dead, and nobody has waited for it
		return "", os.ErrNotExist
	}
	return fmt.Sprintf("%d-%s", pid, f[start]), nil
}

// RemoveStale removes the namespaces of makers that are gone, and returns their names. Those of makers that live stay.
func RemoveStale(ctx context.Context) ([]string, error) {
	entries, err := os.ReadDir(runDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	var removed []string
	var errs []error
	for _, e := range entries {
		m := ownName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		pid, err := strconv.Atoi(m[1])
		if err != nil {
			continue // longer than any process id
		}
		own, err := owner(pid)
		if err == nil && own == m[1]+"-"+m[2] {
			continue
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, err)
			continue
		}
		if err := remove(ctx, e.Name()); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, e.Name())
	}
	return removed, errors.Join(errs...)
}

// inside are the processes that run in a namespace, as ID and name.
func inside(name string) ([]string, error) {
	var want unix.Stat_t
	if err := unix.Stat(filepath.Join(runDir, name), &want); err != nil {
		return nil, fmt.Errorf("netns: %w", &os.PathError{Op: "stat", Path: filepath.Join(runDir, name), Err: err})
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range dirs {
		var st unix.Stat_t
		if unix.Stat(d+"/ns/net", &st) != nil || st.Ino != want.Ino || st.Dev != want.Dev {
			continue // elsewhere, or it has ended meanwhile
		}
		comm, _ := os.ReadFile(d + "/comm")
		out = append(out, filepath.Base(d)+" "+strings.TrimSpace(string(comm)))
	}
	return out, nil
}
