package report

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ReadSeries reads timeseries.csv of a run directory. An empty field is a figure that was not measured.
func ReadSeries(dir string) ([]Second, error) {
	f, err := open(dir, TimeseriesFile)
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if got := strings.Join(head, ",") + "\n"; got != csvHeader {
		return nil, fmt.Errorf("%s: its columns are %q, this program reads %q", f.Name(), strings.TrimSpace(got),
			strings.TrimSpace(csvHeader))
	}
	var out []Second
	for {
		rec, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		s, err := parseSecond(rec)
		if err != nil {
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("%s line %d: %w", f.Name(), line, err)
		}
		out = append(out, s)
	}
}

func parseSecond(rec []string) (s Second, err error) {
	for i, p := range []*int{&s.T, &s.Started, &s.Completed, &s.Errors, &s.Open} {
		if *p, err = strconv.Atoi(rec[i]); err != nil {
			return s, err
		}
	}
	if s.Chunks, err = strconv.ParseInt(rec[5], 10, 64); err != nil {
		return s, err
	}
	for i, p := range []**float64{&s.TTFTp50, &s.TTFTp99, &s.FrontendCPU, &s.WorkerCPU, &s.LoadgenCPU, &s.Busy} {
		if rec[6+i] == "" {
			continue
		}
		v, err := strconv.ParseFloat(rec[6+i], 64)
		if err != nil {
			return s, err
		}
		*p = &v
	}
	return s, nil
}
