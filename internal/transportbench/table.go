package transportbench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Value is what one repetition of a cell came to.
type Value struct {
	Number float64 `json:"value"`
	Note   string  `json:"note,omitempty"` // beside the number: drops, placement
}

// Table is one table of a report. A cell has a value for each repetition, the first one first.
type Table struct {
	Title   string             `json:"title"`
	Note    string             `json:"note,omitempty"`
	Columns []string           `json:"columns"`
	Rows    []string           `json:"rows"`
	Cells   map[string][]Value `json:"cells"`
	// Missing are cells that cannot exist here, with the reason.
	Missing map[string]string `json:"missing,omitempty"`
	// Ratio adds a column: the median of the first column that is named over that of the second, in each row.
	Ratio [2]string `json:"ratio,omitzero"`
}

// Key names a cell.
func Key(row, column string) string { return row + " | " + column }

// Add takes the value of a repetition.
func (t *Table) Add(row, column string, v Value) {
	if t.Cells == nil {
		t.Cells = map[string][]Value{}
	}
	if !slices.Contains(t.Rows, row) {
		t.Rows = append(t.Rows, row)
	}
	if !slices.Contains(t.Columns, column) {
		t.Columns = append(t.Columns, column)
	}
	t.Cells[Key(row, column)] = append(t.Cells[Key(row, column)], v)
}

// Print writes the table: in each cell the range over the repetitions, and the first one, which is often the low one.
func (t *Table) Print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n", t.Title)
	if t.Note != "" {
		fmt.Fprintln(w, t.Note)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := append([]string{""}, t.Columns...)
	if t.Ratio[0] != "" {
		head = append(head, t.Ratio[0]+" / "+t.Ratio[1])
	}
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, row := range t.Rows {
		line := []string{row}
		for _, col := range t.Columns {
			line = append(line, t.text(row, col))
		}
		if t.Ratio[0] != "" {
			line = append(line, t.ratio(row))
		}
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	return tw.Flush()
}

func (t *Table) text(row, col string) string {
	values := t.Cells[Key(row, col)]
	if len(values) == 0 {
		if why := t.Missing[Key(row, col)]; why != "" {
			return why
		}
		return "-"
	}
	low, high := values[0].Number, values[0].Number
	var notes []string
	for _, v := range values {
		low, high = min(low, v.Number), max(high, v.Number)
		if v.Note != "" && !slices.Contains(notes, v.Note) {
			notes = append(notes, v.Note)
		}
	}
	text := number(low)
	if len(values) > 1 {
		text = number(low) + " to " + number(high) + " (first " + number(values[0].Number) + ")"
	}
	if len(notes) > 0 {
		text += " [" + strings.Join(notes, "; ") + "]"
	}
	return text
}

func (t *Table) ratio(row string) string {
	a, ok1 := t.Median(row, t.Ratio[0])
	b, ok2 := t.Median(row, t.Ratio[1])
	if !ok1 || !ok2 || b == 0 {
		return "-"
	}
	return strconv.FormatFloat(a/b, 'f', 2, 64)
}

// Median of a cell, false when it has no value.
func (t *Table) Median(row, col string) (float64, bool) {
	var n []float64
	for _, v := range t.Cells[Key(row, col)] {
		n = append(n, v.Number)
	}
	if len(n) == 0 {
		return 0, false
	}
	slices.Sort(n)
	return (n[(len(n)-1)/2] + n[len(n)/2]) / 2, true
}

// number writes three to four digits, with a comma between thousands.
func number(v float64) string {
	if v < 100 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
