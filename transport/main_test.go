package transport

import (
	"testing"

	"github.com/laneway-ai/laneway/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
