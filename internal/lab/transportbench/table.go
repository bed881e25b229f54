package transportbench

import (
	"slices"
	"strconv"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/benchtable"
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
	// Ratios are further columns.
	Ratios []Ratio `json:"ratios,omitempty"`
}

// Ratio is a column: in each row that of a cell over another, repetition by repetition.
type Ratio struct {
	Title  string `json:"title"`
	Column string `json:"column"`
	Base   string `json:"base_column"`
	// Rows name the row of the other cell, by row; nil = the same row.
	Rows map[string]string `json:"base_rows,omitempty"`
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

// Shown is the table as it is printed: in each cell the range over the repetitions, and the first one, which is often
// the low one.
func (t *Table) Shown() benchtable.Table {
	out := benchtable.Table{Title: t.Title, Head: append([]string{""}, t.Columns...)}
	for _, r := range t.Ratios {
		out.Head = append(out.Head, r.Title)
	}
	for _, row := range t.Rows {
		line := []string{row}
		for _, col := range t.Columns {
			line = append(line, t.text(row, col))
		}
		for _, r := range t.Ratios {
			line = append(line, t.ratio(row, r).String())
		}
		out.Add(line...)
	}
	if t.Note != "" {
		out.Note("%s", t.Note)
	}
	return out
}

func (t *Table) text(row, col string) string {
	values := t.Cells[Key(row, col)]
	if len(values) == 0 {
		return "-"
	}
	var notes []string
	for _, v := range values {
		if v.Note != "" && !slices.Contains(notes, v.Note) {
			notes = append(notes, v.Note)
		}
	}
	s := benchtable.SpreadOf(t.numbers(row, col))
	text := number(s.Min)
	if s.N > 1 {
		text = number(s.Min) + " to " + number(s.Max) + " (first " + number(values[0].Number) + ")"
	}
	if len(notes) > 0 {
		text += " [" + strings.Join(notes, "; ") + "]"
	}
	return text
}

func (t *Table) ratio(row string, r Ratio) benchtable.Spread {
	base := row
	if r.Rows != nil {
		base = r.Rows[row]
	}
	return benchtable.RatioOf(t.numbers(row, r.Column), t.numbers(base, r.Base))
}

// numbers are those of a cell, none when it was not measured.
func (t *Table) numbers(row, col string) (out []float64) {
	for _, v := range t.Cells[Key(row, col)] {
		out = append(out, v.Number)
	}
	return out
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
