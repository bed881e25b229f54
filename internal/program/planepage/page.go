package planepage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strconv"
	"sync"

	"github.com/laneway-ai/laneway/internal/program/chart"
)

// Page is one page, from the top down.
type Page struct {
	Title, Sub string
	// Alerts stand out before everything else.
	Alerts []string
	// Back is where the reader came from: a link's address and text; none when empty.
	Back     Link
	Refresh  *Refresh // nil: the page is for one look
	Tiles    []Fact
	Sections []Section
}

// Link is an address on this server and its text.
type Link struct{ To, Text string }

// Section is a part of a page with a heading.
type Section struct {
	ID, Title string
	Said      string // a sentence on what is below
	Facts     []Fact
	Loads     []LoadLine
	Form      *Form
	Tables    []Table
}

// Fact is a name and what it is.
type Fact struct {
	Name, Value string
	Bad         bool // the reader should look at it
	To          string
}

// LoadLine is the picture of one worker process: two bars of what part of the most each is.
type LoadLine struct {
	Name   string
	Holder bool
	Bars   []Bar
	Note   string
}

// Bar is a value beside those of the other lines. Parts are shares of the width, from 0 to 100.
type Bar struct {
	Name, Text string
	Parts      []float64
	Marked     bool
}

// Form asks for one value and sends it by GET.
type Form struct{ Action, Name, Label, Button string }

// Table is a table below a summary. Cells of the first Left columns are words, the rest are numbers.
type Table struct {
	Summary string
	Open    bool
	Heads   []string
	Left    int
	Rows    [][]Cell
	More    string // what is not in it
}

// Cell is one cell.
type Cell struct {
	Text, To string
	Bad      bool
}

// Refresh has the page load itself again, if the reader wants.
type Refresh struct {
	Every   int // seconds, 0 = not
	Choices []int
	Path    string
}

// RefreshParam is the query's parameter that sets Refresh.
const RefreshParam = "refresh"

// refreshChoices are the seconds that a reader may choose.
var refreshChoices = []int{0, 2, 10, 60}

// maxRows bounds a table; the JSON has the rest.
const maxRows = 1000

//go:embed page.tmpl
var pageText string

//go:embed page.css
var pageCSS string

type look struct {
	page *template.Template
	css  template.CSS
	csp  string
}

// looks parses the template once, at the first page.
var looks = sync.OnceValue(func() look {
	css := chart.CSS + pageCSS
	sum := sha256.Sum256([]byte(css))
	funcs := template.FuncMap{"every": func(n int) string {
		if n == 0 {
			return "off"
		}
		return strconv.Itoa(n) + " s"
	}, "x": func(parts []float64, i int) float64 {
		x := 0.0
		for _, p := range parts[:i] {
			x += p
		}
		return x
	}, "left": func(i, left int) bool { return i < left }}
	return look{
		page: template.Must(template.New("page").Funcs(funcs).Parse(pageText)), css: template.CSS(css),
		csp: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	}
})

// Serve answers with the page.
func (p *Page) Serve(w http.ResponseWriter, status int) {
	l := looks()
	for i := range p.Sections {
		for k := range p.Sections[i].Tables {
			p.Sections[i].Tables[k].cut()
		}
	}
	var b bytes.Buffer
	if err := l.page.Execute(&b, struct {
		*Page
		CSS template.CSS
	}{p, l.css}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", l.csp)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the reader may have left
}

func (t *Table) cut() {
	if n := len(t.Rows) - maxRows; n > 0 {
		t.Rows = t.Rows[:maxRows]
		t.More = thousands(int64(n)) + " more are in the JSON. " + t.More
	}
}
