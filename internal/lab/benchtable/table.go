// Package benchtable has the tables that benchmarks end with. The same cells are printed for a terminal, and as
// Markdown for a document.
package benchtable

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Table is a title, rows of cells, and notes below them. A row may be shorter than the head.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
	Notes []string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Note adds a line below the rows.
func (t *Table) Note(format string, a ...any) { t.Notes = append(t.Notes, fmt.Sprintf(format, a...)) }

// Print writes tables with their columns aligned, the first one to the left and figures to the right.
func Print(w io.Writer, tables ...Table) error {
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		if t.Title != "" {
			b.WriteString(t.Title + "\n")
		}
		var width []int
		for _, cells := range t.all() {
			for c, text := range cells {
				if c == len(width) {
					width = append(width, 0)
				}
				width[c] = max(width[c], utf8.RuneCountInString(text))
			}
		}
		for _, cells := range t.all() {
			var line strings.Builder
			for c, text := range cells {
				space := strings.Repeat(" ", width[c]-utf8.RuneCountInString(text))
				if c == 0 {
					line.WriteString(text + space)
				} else {
					line.WriteString("  " + space + text)
				}
			}
			b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
		for _, n := range t.Notes {
			b.WriteString(n + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) all() [][]string { return append([][]string{t.Head}, t.Rows...) }

// Markdown writes tables as a document has them: the title bold, the notes as a list.
func Markdown(w io.Writer, tables ...Table) error {
	var b strings.Builder
	for i, t := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		if t.Title != "" {
			b.WriteString("**" + t.Title + "**\n\n")
		}
		row := func(cells []string) {
			b.WriteByte('|')
			for c := range t.Head {
				text := ""
				if c < len(cells) {
					text = strings.ReplaceAll(cells[c], "|", `\|`)
				}
				b.WriteString(" " + text + " |")
			}
			b.WriteByte('\n')
		}
		row(t.Head)
		b.WriteString("|" + strings.Repeat("---|", len(t.Head)) + "\n")
		for _, cells := range t.Rows {
			row(cells)
		}
		if len(t.Notes) > 0 {
			b.WriteString("\n- " + strings.Join(t.Notes, "\n- ") + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// File is where the Markdown of a run stands, beside its run.json.
const File = "tables.md"

// Write writes File into dir.
func Write(dir string, tables ...Table) error {
	var b strings.Builder
	if err := Markdown(&b, tables...); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, File), []byte(b.String()), 0o644)
}
