package childproc

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// tail keeps the last lines of a child's log and passes all of them on.
type tail struct {
	name string
	to   io.Writer // nil: kept only

	mu    sync.Mutex
	lines []string
	part  string
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(t.part+string(b), "\n")
	t.part = lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		if t.to != nil {
			fmt.Fprintf(t.to, "[%s] %s\n", t.name, l)
		}
		t.lines = append(t.lines, l)
	}
	if n := len(t.lines) - tailLines; n > 0 {
		t.lines = t.lines[n:]
	}
	return len(b), nil
}

func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := append([]string(nil), t.lines...)
	if t.part != "" {
		out = append(out, t.part)
	}
	return out
}
