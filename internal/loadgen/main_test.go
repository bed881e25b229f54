package loadgen

import (
	"os"
	"testing"

	"github.com/laneway-ai/laneway/internal/leaktest"
)

func TestMain(m *testing.M) {
	if os.Getenv(tickServerEnv) != "" { // this process is the server of BenchmarkClient
		tickServer()
		return
	}
	leaktest.Main(m)
}
