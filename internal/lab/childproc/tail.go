package childproc

import (
	"bytes"
	"io"
	"sync"
)

// maxLine bounds what is kept of a line: one that does not end is cut.
const maxLine = 16 << 10

// Tail takes a child's log: it keeps the last lines, and passes each whole line on. It may be used concurrently.
type Tail struct {
	Keep   int       // lines
	To     io.Writer // nil: kept only
	Prefix string    // of the lines that are passed on

	mu    sync.Mutex
	lines []string
	part  []byte // of a line that has not ended
}

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		end := i
		if i < 0 {
			end = len(b)
		}
		t.part = append(t.part, b[:min(end, maxLine-len(t.part))]...)
		if i < 0 {
			return n, nil
		}
		b = b[i+1:]
		t.line()
	}
}

// line takes the line that has ended.
func (t *Tail) line() {
	if t.To != nil {
		if _, err := t.To.Write(append(append([]byte(t.Prefix), t.part...), '\n')); err != nil {
			t.To = nil // a user's terminal that went away is no reason to stop the child
		}
	}
	if t.Keep > 0 {
		if len(t.lines) == t.Keep {
			t.lines = append(t.lines[:0], t.lines[1:]...)
		}
		t.lines = append(t.lines, string(t.part))
	}
	t.part = t.part[:0]
}

// Last is the lines that are kept, and what there is of the one that has not ended.
func (t *Tail) Last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := append([]string(nil), t.lines...)
	if len(t.part) > 0 {
		out = append(out, string(t.part))
	}
	return out
}
