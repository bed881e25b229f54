// Package report is the record of one load run: run.json (schema laneway.run/1), requests.jsonl, timeseries.csv and
// report.html, the arithmetic that leads from the rows to the numbers, and the tables that are printed.
//
// Times in rows are nanoseconds on one monotonic clock, counted from the start of the run. A figure that was not
// measured is absent (a nil pointer), never zero. Percentiles are exact, taken from the rows; only gaps between chunks
// come from a histogram.
package report
