package cli

import (
	"errors"
	"strings"
	"testing"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestHelpThatGetsLost: text that did not arrive is not a success.
func TestHelpThatGetsLost(t *testing.T) {
	for _, arg := range []string{"--help", "--version"} {
		a, _, errs := newTest()
		a.Stdout = fullDisk{}
		if code := a.Run([]string{arg}, nil); code != ExitFailure || !strings.Contains(errs.String(),
			"no space left on device") {
			t.Errorf("%s: exit code %d, %q", arg, code, errs)
		}
	}
}
