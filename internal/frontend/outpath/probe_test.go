package outpath

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/laneway-ai/laneway/internal/frontend/outpath/outpathtest"
)

func TestProbe(t *testing.T) {
	b := batch(t) // skips where there are none
	b.Finish()
	if err := b.pool.Probe(); err != nil {
		t.Fatal(err)
	}
	if again, err := b.pool.Get(); err != nil || again != b {
		t.Errorf("the batch that was probed with is not in the pool: %v", err)
	}
	if err := b.ring.close(); err != nil { // as of a kernel whose ring does not do it
		t.Fatal(err)
	}
	b.pool.free = []*Batch{b}
	if err := b.pool.Probe(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Probe: %v", err)
	}
	if _, err := b.pool.Get(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Get after a Probe that failed: %v", err)
	}
}

// TestProbeInASandbox runs in a child to which the kernel refuses io_uring.
func TestProbeInASandbox(t *testing.T) {
	const child = "LANEWAY_TEST_SANDBOX"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestProbeInASandbox$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := outpathtest.ForbidRings(); err != nil {
		t.Fatal(err)
	}
	var pool Batches
	defer pool.Close()
	if err := pool.Probe(); !errors.Is(err, os.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) &&
		!errors.Is(err, syscall.ENOSYS) {
		t.Errorf("Probe: %v", err)
	}
}
