package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/laneway-ai/laneway/internal/program/redact"
)

// Exit codes of the programs. They are part of the contract with scripts.
const (
	ExitOK            = 0
	ExitFailure       = 1 // usage or set-up error, and every other error
	ExitBadRun        = 2 // error rate too high, a wrong token, or no proof of transit
	ExitThreshold     = 3 // a threshold was missed
	ExitNotComparable = 4 // nothing comparable

	exitSignal = 130 // a second signal, as shells report an interrupt
)

// ExitError gives a program's exit code together with the reason.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// FlagError is one complaint about one setting.
type FlagError struct {
	Flag  string // the long name, without dashes; "" when the argument belongs to no flag
	Where string // as the user wrote it: "--lanes", "-c" or "LANEWAY_LANES"
	Value string // the value as it was given; without secrets
	Err   error  // what is wrong with it, and what would be right
}

func (e *FlagError) Error() string {
	where := e.Where
	if e.Value != "" {
		sep := " "
		if strings.HasPrefix(where, envPrefix) {
			sep = "="
		}
		where += sep + e.Value
	}
	return where + ": " + e.Err.Error()
}

func (e *FlagError) Unwrap() error { return e.Err }

// UsageError holds everything that is wrong with a command line. Err joins the complaints.
type UsageError struct {
	Name string // program and command
	Err  error
}

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// SignalError is the cause of the context after a signal.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "stopped by signal: " + e.Signal.String() }

// interrupted replaces a bare "context canceled" by the signal that caused it.
func interrupted(ctx context.Context, err error) error {
	var sig *SignalError
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &sig) {
		var exit *ExitError
		if errors.As(err, &exit) {
			return err
		}
		return sig
	}
	return err
}

// report prints err and returns the exit code. A usage error takes a line for each complaint, any other error one line.
func (a *App) report(err error) int {
	if err == nil {
		return ExitOK
	}
	var usage *UsageError
	if errors.As(err, &usage) {
		for _, c := range complaints(usage.Err) {
			fmt.Fprintf(a.Stderr, "%s: %s\n", a.Name(), line(c))
		}
		fmt.Fprintf(a.Stderr, "%s: all flags and their ranges: %s --help\n", a.Name(), a.Name())
		return ExitFailure
	}
	fmt.Fprintf(a.Stderr, "%s: %s\n", a.Name(), line(err))
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Code
	}
	return ExitFailure
}

// complaints takes joined errors apart.
func complaints(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, complaints(e)...)
		}
		return all
	}
	return []error{err}
}

// line is an error as one line, without the secrets of URLs that another package may have put there.
func line(err error) string {
	return strings.ReplaceAll(strings.TrimRight(redact.Error(err).Error(), "\n"), "\n", "; ")
}
