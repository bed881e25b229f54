package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Level is what a finding means.
type Level string

// Levels of findings.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, but less well than it could, or something could not be looked at
	Fail Level = "fail" // the program will not work as it is set up
)

// Finding is one line of a report.
type Finding struct {
	Level Level  `json:"level"`
	Check string `json:"check"` // what was looked at: "net.core.rmem_max", "quic port 7001"
	Text  string `json:"text"`  // what was found
	Fix   string `json:"fix,omitempty"`
}

// Report is what Run found, in order.
type Report struct {
	Program  string    `json:"program"`
	Findings []Finding `json:"findings"`
	Failed   int       `json:"failed"`
	Warned   int       `json:"warned"`
}

func (r *Report) add(l Level, check, text, fix string) {
	r.Findings = append(r.Findings, Finding{Level: l, Check: check, Text: text, Fix: fix})
	switch l {
	case Fail:
		r.Failed++
	case Warn:
		r.Warned++
	}
}

func (r *Report) ok(check, format string, a ...any) { r.add(OK, check, fmt.Sprintf(format, a...), "") }

func (r *Report) warn(check, text, fix string) { r.add(Warn, check, text, fix) }

func (r *Report) fail(check, text, fix string) { r.add(Fail, check, text, fix) }

// FailedError says that the report has findings of level Fail.
type FailedError struct{ Failed, Warned int }

func (e *FailedError) Error() string {
	return fmt.Sprintf("%d checks failed, %d gave a warning", e.Failed, e.Warned)
}

// Err is a *FailedError when something failed. Warnings are no error.
func (r *Report) Err() error {
	if r.Failed == 0 {
		return nil
	}
	return &FailedError{Failed: r.Failed, Warned: r.Warned}
}

// Write prints the report for people: a line for each finding, its fix on the next.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-4s  %s: %s\n", f.Level, f.Check, oneLine(f.Text))
		if f.Fix != "" {
			fmt.Fprintf(&b, "      fix: %s\n", oneLine(f.Fix))
		}
	}
	fmt.Fprintf(&b, "%d checks: %d ok, %d warnings, %d failed\n", len(r.Findings), len(r.Findings)-r.Warned-r.Failed,
		r.Warned, r.Failed)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON prints the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
