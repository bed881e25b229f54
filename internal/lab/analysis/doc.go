// Package analysis compares load runs. It reads run directories, computes their figures and holders again from the
// rows, sets aside the runs whose numbers may not be used, and puts the others into one table line for each
// configuration and number of holders: ranges, because a few runs have no meaningful average. Compare holds two sides
// against each other, equal numbers of holders only, and says when it cannot tell.
package analysis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/laneway-ai/laneway/internal/lab/report"
)

// Windows that figures can be taken from.
const (
	WindowSteady = "steady"
	WindowRaw    = "raw"
)

// Options says how runs are judged. The zero value is the default.
type Options struct {
	// Window is where rates and latencies are taken from: WindowSteady (the default) or WindowRaw. A run without that
	// window is set aside.
	Window string
	// Allow lists marks that do not set a run aside: report.MarkNotSteady, MarkClientLimited, MarkPartial. No mark
	// allows a run without proof of transit.
	Allow []string
	// MaxErrorRate is the share of failed requests, 0 to 1, above which a run is set aside. Default 0.
	MaxErrorRate float64
	// Across lists settings (keys of run.json's config) in which the two sides of a comparison may differ although they
	// change the load.
	Across []string
}

// Allowable are the marks that Options.Allow takes.
func Allowable() []string {
	return []string{report.MarkNotSteady, report.MarkClientLimited, report.MarkPartial}
}

func (o Options) withDefaults() Options {
	if o.Window == "" {
		o.Window = WindowSteady
	}
	return o
}

// Validate joins all complaints.
func (o Options) Validate() error {
	var errs []error
	if o.Window != "" && o.Window != WindowSteady && o.Window != WindowRaw {
		errs = append(errs, fmt.Errorf("window %q is not known: use %s or %s", o.Window, WindowSteady, WindowRaw))
	}
	for _, m := range o.Allow {
		if !contains(Allowable(), m) {
			errs = append(errs, fmt.Errorf("the mark %q cannot be allowed: use one of %s", m,
				strings.Join(Allowable(), ", ")))
		}
	}
	if !(o.MaxErrorRate >= 0 && o.MaxErrorRate <= 1) {
		errs = append(errs, fmt.Errorf("the error rate %v is not between 0 and 1", o.MaxErrorRate))
	}
	return errors.Join(errs...)
}

// NotComparableError says that no run was left to compare, or that the sides have nothing in common.
type NotComparableError struct{ Reasons []string }

func (e *NotComparableError) Error() string {
	return "nothing comparable: " + strings.Join(e.Reasons, "; ")
}

// InputError says that a folder cannot be read as a run.
type InputError struct {
	Dir string
	Err error
}

func (e *InputError) Error() string { return e.Dir + ": " + e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
