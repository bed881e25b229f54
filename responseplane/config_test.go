package responseplane_test

import (
	"strings"
	"testing"

	"github.com/laneway-ai/laneway/responseplane"
)

// TestNamesAreText: a name becomes a label of metrics and a word of a record.
func TestNamesAreText(t *testing.T) {
	const latin1, want = "caf\xe9", `.Name "caf\xe9" is not UTF-8 text`
	if err := (responseplane.FrontendConfig{Name: latin1}).Validate(); err == nil || !strings.Contains(err.Error(),
		want) {
		t.Errorf("frontend: %v", err)
	}
	if err := (responseplane.WorkerConfig{Name: latin1}).Validate(); err == nil || !strings.Contains(err.Error(),
		want) {
		t.Errorf("worker: %v", err)
	}
}
