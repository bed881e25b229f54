package cli

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTest is an app with the environment env whose output goes to the buffers.
func newTest(env ...string) (a *App, out, errs *bytes.Buffer) {
	a = New("prog", "does things")
	a.Env = env
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	a.Stdout, a.Stderr = out, errs
	return a, out, errs
}
