package planepage

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// FormatParam is the query's parameter that chooses page or JSON whatever Accept says.
const FormatParam = "format"

// Wants says whether the request is for the page (true) or for JSON: by ?format=html or json, else by Accept. JSON is
// what one gets who does not care; a browser asks for text/html. It sets Vary.
func Wants(w http.ResponseWriter, r *http.Request) (page bool, err error) {
	w.Header().Add("Vary", "Accept")
	if v := r.URL.Query()[FormatParam]; len(v) > 0 {
		switch v[0] {
		case "html":
			return true, nil
		case "json":
			return false, nil
		}
		return false, fmt.Errorf("%s=%q: write %s=json or %s=html", FormatParam, clip(v[0]), FormatParam, FormatParam)
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	html, named := quality(accept, "text", "html")
	json, _ := quality(accept, "application", "json")
	return named && html > 0 && html >= json, nil
}

// quality is how much Accept likes a type, from 0 to 1, and whether it names it, not just a range.
func quality(accept, kind, sub string) (q float64, named bool) {
	best := -1
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		k, s, _ := strings.Cut(strings.ToLower(strings.TrimSpace(name)), "/")
		rank := -1
		switch {
		case k == kind && s == sub:
			rank = 2
		case k == kind && s == "*":
			rank = 1
		case k == "*" && s == "*":
			rank = 0
		}
		if rank <= best {
			continue
		}
		best, q, named = rank, 1, rank == 2
		for p := range strings.SplitSeq(params, ";") {
			key, v, _ := strings.Cut(strings.TrimSpace(p), "=")
			if f, err := strconv.ParseFloat(v, 64); strings.EqualFold(key, "q") && err == nil {
				q = min(max(f, 0), 1)
			}
		}
	}
	return q, named
}

// RefreshOf reads the reader's choice of how often the page loads itself again.
func RefreshOf(r *http.Request) (*Refresh, error) {
	f := &Refresh{Choices: refreshChoices, Path: r.URL.Path}
	v := r.URL.Query()[RefreshParam]
	if len(v) == 0 {
		return f, nil
	}
	n, err := strconv.Atoi(v[0])
	if err != nil || !slices.Contains(refreshChoices, n) {
		return nil, fmt.Errorf("%s=%q: write one of %s, in seconds; 0 is off", RefreshParam, clip(v[0]),
			strings.Trim(fmt.Sprint(refreshChoices), "[]"))
	}
	f.Every = n
	return f, nil
}

func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}
