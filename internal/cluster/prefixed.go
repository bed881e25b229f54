package cluster

import (
	"bytes"
	"io"
)

// prefixed writes whole lines, each with a prefix. It is used by one goroutine.
type prefixed struct {
	w      io.Writer
	prefix string
	part   []byte // of a line that has not ended
}

// maxLine bounds what is kept of a line that does not end.
const maxLine = 16 << 10

func (p *prefixed) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			if len(p.part)+len(b) <= maxLine {
				p.part = append(p.part, b...)
			}
			return n, nil
		}
		line := append([]byte(p.prefix), p.part...)
		line = append(line, b[:i+1]...)
		p.part, b = p.part[:0], b[i+1:]
		if _, err := p.w.Write(line); err != nil {
			// The user's terminal went away; that is no reason to stop the run. (A nil error keeps os/exec copying.)
			p.w = io.Discard
		}
	}
}
