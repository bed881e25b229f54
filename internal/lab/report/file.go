package report

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// IrregularError says that a file of a run directory is a pipe, a device or a folder. Opening a pipe would wait for its
// writer, and no signal ends that.
type IrregularError struct {
	Path string
	Mode fs.FileMode
}

func (e *IrregularError) Error() string {
	kind := "no regular file"
	switch {
	case e.Mode.IsDir():
		kind = "a folder"
	case e.Mode&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	}
	return fmt.Sprintf("%s is %s: a run directory holds regular files only", e.Path, kind)
}

// open opens a file of a run directory for reading.
func open(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name)
	if err := regular(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// readFile reads one.
func readFile(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	if err := regular(path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func regular(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return &IrregularError{Path: path, Mode: st.Mode()}
	}
	return nil
}
