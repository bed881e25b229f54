package report

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"time"
)

// Name is a name for a run of this kind that no other run has, though it may begin in the same millisecond on another
// host.
func Name(kind string, at time.Time) string {
	return kind + "-" + at.Format("20060102-150405.000") + "-" + strings.ToLower(rand.Text()[:8])
}

// DefaultDir is where a run's directory goes when nobody says.
func DefaultDir(kind string, at time.Time) string { return filepath.Join("runs", Name(kind, at)) }
