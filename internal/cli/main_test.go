package cli

import (
	"bytes"
	"testing"

	"github.com/laneway-ai/laneway/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// newTest is an app with the environment env whose output goes to the buffers.
func newTest(env ...string) (a *App, out, errs *bytes.Buffer) {
	a = New("prog", "does things")
	a.Env = env
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	a.Stdout, a.Stderr = out, errs
	return a, out, errs
}
