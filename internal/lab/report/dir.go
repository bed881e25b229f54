package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Dir is a run directory that is being written. It is used by one goroutine.
type Dir struct {
	path string
	rows *os.File
	buf  *bufio.Writer
	line []byte
	err  error // the first failure of writing a row
}

// Create makes the directory and opens requests.jsonl in it. A directory that already holds a run is refused, so that
// no run is overwritten or mixed with another.
func Create(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, RowsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s already holds a run: name another directory or remove it: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	return &Dir{path: path, rows: f, buf: bufio.NewWriterSize(f, 256<<10)}, nil
}

// Path is the directory.
func (d *Dir) Path() string { return d.path }

// Add writes a row. It is buffered: Flush brings it to the file. After a failure it does nothing; Finish returns the
// failure.
func (d *Dir) Add(r *Row) {
	if d.err != nil {
		return
	}
	d.line = append(r.AppendJSON(d.line[:0]), '\n')
	_, d.err = d.buf.Write(d.line)
}

// Flush writes what is buffered, so that a killed load generator leaves all rows but the last moments'.
func (d *Dir) Flush() {
	if d.err == nil {
		d.err = d.buf.Flush()
	}
}

// Finish closes requests.jsonl and writes timeseries.csv, run.json and report.html.
func (d *Dir) Finish(run *Run, series []Second) error {
	d.Flush()
	err := errors.Join(d.err, d.rows.Close())
	err = errors.Join(err, writeFile(filepath.Join(d.path, TimeseriesFile), AppendCSV(nil, series)))
	return errors.Join(err, WriteRun(d.path, run))
}

// Abandon closes the file of a run that ends without a report. One that has no row is removed, so that the directory
// can be used again.
func (d *Dir) Abandon() error {
	d.Flush()
	st, err := d.rows.Stat()
	err = errors.Join(d.err, err, d.rows.Close())
	if err == nil && st.Size() == 0 {
		err = os.Remove(filepath.Join(d.path, RowsFile))
	}
	return err
}

// WriteRun writes run.json into dir, whole or not at all, and report.html to go with it. The starter of a run uses it
// to add what only it knows.
func WriteRun(dir string, run *Run) error {
	b, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", RunFile, err)
	}
	if err := writeFile(filepath.Join(dir, RunFile), append(b, '\n')); err != nil {
		return err
	}
	return WriteHTML(dir)
}

func writeFile(path string, b []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("%w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("%w", errors.Join(err, os.Remove(tmp)))
	}
	return nil
}

// SchemaError says that run.json is of a schema that this program does not read.
type SchemaError struct{ Path, Got string }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s has schema %q, this program reads %q", e.Path, e.Got, Schema)
}

// Read reads run.json of a run directory. Another schema gives a *SchemaError.
func Read(dir string) (*Run, error) {
	path := filepath.Join(dir, RunFile)
	b, err := readFile(dir, RunFile)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	var run Run
	if err := json.Unmarshal(b, &run); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if run.Schema != Schema {
		return nil, &SchemaError{Path: path, Got: run.Schema}
	}
	return &run, nil
}
