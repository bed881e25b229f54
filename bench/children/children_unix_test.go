//go:build unix

package children

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExitCodeAndOutput(t *testing.T) {
	var out, errs strings.Builder
	code, err := Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo $WORD; echo bad >&2; exit 3"},
		Env: []string{"WORD=good"}, Stdout: &out, Stderr: &errs, Limit: time.Minute})
	if code != 3 || err == nil || out.String() != "good\n" || errs.String() != "bad\n" {
		t.Errorf("code %d, %v, %q, %q", code, err, &out, &errs)
	}
	if code, err := Run(t.Context(), Command{Path: "/no/such/program", Limit: time.Minute}); code != -1 || err == nil {
		t.Errorf("a program that is not there: %d, %v", code, err)
	}
	t.Setenv("LANEWAY_LANES", "9")
	if got, err := Output(t.Context(), "", "sh", "-c", "echo set:$LANEWAY_LANES"); err != nil || got != "set:" {
		t.Errorf("%q, %v", got, err)
	}
}
