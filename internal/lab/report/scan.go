package report

import (
	"bufio"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
)

// keptBad is how many bad rows are kept as examples; the rest are counted.
const keptBad = 20

// Bad is what could not be used of a requests.jsonl. The other rows stand.
type Bad struct {
	Count int
	First []*BadRow // the first keptBad of them
}

func (b *Bad) add(line int, err error) {
	if b.Count++; len(b.First) < keptBad {
		b.First = append(b.First, &BadRow{Line: line, Err: err})
	}
}

// ErrLongRow says that a line of requests.jsonl is longer than any row.
var ErrLongRow = fmt.Errorf("longer than %d bytes", maxRowBytes)

// OrderError says that a row's times are not in order, so that no latency follows from them.
type OrderError struct{ ID, Later, Before string }

func (e *OrderError) Error() string {
	return fmt.Sprintf("request %q has %s before %s", e.ID, e.Later, e.Before)
}

// TwiceError says that a request has a second row.
type TwiceError struct{ ID string }

func (e *TwiceError) Error() string { return fmt.Sprintf("request %q stands twice", e.ID) }

// ScanRows reads rows one at a time and hands each to each; the row is only valid during the call. Names that repeat
// (process, worker, lane, end) are the same strings for all rows. A line that is no row is counted in bad and skipped,
// however long it is; err is for the reading as a whole.
func ScanRows(r io.Reader, each func(*Row)) (bad Bad, err error) {
	br := bufio.NewReaderSize(r, 256<<10)
	s := rowScanner{names: map[string]string{}}
	var row Row
	var long []byte
	for n := 1; ; n++ {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			if line, long, err = readLong(br, append(long[:0], line...)); errors.Is(err, ErrLongRow) {
				bad.add(n, err)
				continue
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return bad, err
		}
		last := err != nil
		if line = trimEnd(line); len(line) > 0 {
			if err := s.parse(line, &row); err != nil {
				bad.add(n, err)
			} else {
				each(&row)
			}
		}
		if last {
			return bad, nil
		}
	}
}

// readLong reads the rest of a line that does not fit the reader's buffer. Past maxRowBytes it skips what is left of
// the line.
func readLong(br *bufio.Reader, have []byte) (line, buf []byte, err error) {
	tooLong := false
	for {
		part, err := br.ReadSlice('\n')
		if !tooLong {
			have = append(have, part...)
			tooLong = len(have) > maxRowBytes
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if tooLong && (err == nil || errors.Is(err, io.EOF)) {
			return nil, have, ErrLongRow
		}
		return have, have, err
	}
}

func trimEnd(b []byte) []byte {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	return b
}

// ScanDir is ScanRows over the rows of a run directory, with what only the whole file shows: a row whose times are not
// in order, or whose request already has a row, counts as bad too.
func ScanDir(dir string, each func(*Row)) (Bad, error) {
	f, err := open(dir, RowsFile)
	if err != nil {
		return Bad{}, fmt.Errorf("%w", err)
	}
	defer f.Close()
	// Hashes, so that a quarter of a million requests take megabytes; two that collide by chance are one in 10^8 runs.
	seen := map[uint64]struct{}{}
	seed := maphash.MakeSeed()
	var wrong Bad
	n := 0
	bad, err := ScanRows(f, func(r *Row) {
		n++
		if err := orderOf(r); err != nil {
			wrong.add(0, err)
			return
		}
		h := maphash.String(seed, r.ID)
		if _, ok := seen[h]; ok {
			wrong.add(0, &TwiceError{ID: r.ID})
			return
		}
		seen[h] = struct{}{}
		each(r)
	})
	bad.Count += wrong.Count
	bad.First = append(bad.First, wrong.First...)
	if err != nil {
		return bad, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return bad, nil
}

// ReadRows reads the rows of a run directory. bad lists the first lines that could not be read; err is for the file as
// a whole.
func ReadRows(dir string) (rows []Row, bad []*BadRow, err error) {
	f, err := open(dir, RowsFile)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return DecodeRows(f)
}

// DecodeRows is ReadRows from a reader.
func DecodeRows(r io.Reader) (rows []Row, bad []*BadRow, err error) {
	b, err := ScanRows(r, func(row *Row) { rows = append(rows, *row) })
	return rows, b.First, err
}
