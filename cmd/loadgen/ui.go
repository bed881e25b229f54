package main

import (
	"fmt"
	"io"
	"os"

	"github.com/laneway-ai/laneway/internal/lab/loadgen"
)

const (
	uiAuto   = "auto"
	uiSimple = "simple"
	uiNone   = "none"
)

// simpleEvery is how many seconds pass between the lines of --ui simple, so that a log of a long run stays short.
const simpleEvery = 10

// ui shows the status line. Its methods are called one at a time.
type ui struct {
	w       io.Writer
	kind    string
	rewrite bool // on a terminal: one line that is written over
	calls   int
	shown   bool
}

func newUI(kind string, w io.Writer) *ui {
	return &ui{w: w, kind: kind, rewrite: kind == uiAuto && isTerminal(w)}
}

func (u *ui) show(s loadgen.Status) {
	u.calls++
	switch {
	case u.kind == uiNone:
	case u.rewrite:
		fmt.Fprintf(u.w, "\r\x1b[K%s", s)
		u.shown = true
	case u.calls%simpleEvery == 1:
		fmt.Fprintln(u.w, s)
	}
}

// end leaves the terminal on a fresh line.
func (u *ui) end() {
	if u.shown {
		fmt.Fprint(u.w, "\r\x1b[K")
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
