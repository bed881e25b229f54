//go:build unix

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStopBeforeTheBeginning: a child that was told to end before it caught signals ended well when it had not begun
// anything.
func TestStopBeforeTheBeginning(t *testing.T) {
	log := filepath.Join(t.TempDir(), "early.log")
	c, err := start(spec{name: "early", path: "/bin/sleep", args: []string{"60"}, log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.stop(patience); err != nil {
		t.Errorf("before its first line: %v", err)
	}

	log = filepath.Join(t.TempDir(), "begun.log")
	c, err = start(spec{name: "begun", path: "/bin/sh", args: []string{"-c", "echo begun; exec sleep 60"}, log: log})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if b, _ := os.ReadFile(log); len(b) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no line came")
		}
	}
	var stop *StopError
	if err := c.stop(patience); !errors.As(err, &stop) || !strings.Contains(err.Error(),
		"its last log lines: begun (all of them: ") {
		t.Errorf("after its first line: %v", err)
	}
	if got := (&StopError{Name: "x", State: "exit status 1",
		Log: log}).Error(); got != "x did not stop cleanly (exit status 1), and logged nothing" {
		t.Errorf("%q", got)
	}
}
