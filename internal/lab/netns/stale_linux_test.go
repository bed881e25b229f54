package netns

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestOwner: the same process has one owner name, another one has another, and a dead one none, also while nobody has
// waited for it.
func TestOwner(t *testing.T) {
	own, err := owner(os.Getpid())
	again, _ := owner(os.Getpid())
	if err != nil || own != again || !strings.HasPrefix(own, strconv.Itoa(os.Getpid())+"-") {
		t.Fatalf("%q, %q, %v", own, again, err)
	}
	if m := ownName.FindStringSubmatch(namePrefix + own + "-1-worker-0"); m == nil || m[1]+"-"+m[2] != own {
		t.Errorf("the name of %s reads as %v", own, m)
	}
	for _, foreign := range []string{"laneway-lab", "laneway-1-2", "laneway-1-2-3", "laneway-x-2-3-hub", "cni-1234"} {
		if ownName.MatchString(foreign) {
			t.Errorf("%s is taken for one of ours", foreign)
		}
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if other, err := owner(cmd.Process.Pid); err != nil || other == own {
		t.Errorf("another process is %q, %v", other, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := owner(cmd.Process.Pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that has ended: %v", err)
	}
}

// TestCheckLeavesTheProcessWhereItIs: /proc/self is the process's first thread, which must not be left in a namespace
// that was made for a try.
func TestCheckLeavesTheProcessWhereItIs(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		_ = Check() // whatever it finds
	}
	if after, err := os.Readlink("/proc/self/ns/net"); after != before {
		t.Errorf("the process was in %s and is in %s, %v", before, after, err)
	}
}
