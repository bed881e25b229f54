package report

import (
	"errors"
	"fmt"
)

// InvalidError says why a run's numbers may not be used.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return e.Reason }

// Verdict returns every reason why the run may not be used, joined: more errors than maxErrorRate (a share, 0 to 1), a
// wrong token, no proof of transit, or nothing measured. Warm-up requests count too: a server that fails them is not
// well.
func (r *Run) Verdict(maxErrorRate float64) error {
	var errs []error
	bad := func(format string, a ...any) { errs = append(errs, &InvalidError{fmt.Sprintf(format, a...)}) }
	ok, failed, wrong := 0, 0, int64(0)
	if w := r.Raw; w != nil {
		ok, failed = ok+w.Requests, failed+w.Errors
		if w.WrongTokens != nil {
			wrong += *w.WrongTokens
		}
	}
	if w := r.Warmup; w != nil {
		ok, failed = ok+w.Requests, failed+w.Errors
		if w.WrongTokens != nil {
			wrong += *w.WrongTokens
		}
	}
	if ok+failed == 0 {
		bad("no request ended")
	} else if rate := float64(failed) / float64(ok+failed); rate > maxErrorRate {
		bad("%d of %d requests failed: error rate %.4g, at most %.4g is allowed", failed, ok+failed, rate, maxErrorRate)
	}
	if wrong > 0 {
		bad("%d wrong tokens", wrong)
	}
	if r.Marked(MarkNoProof) {
		bad("no proof of transit: the plane's counters do not hold the tokens")
	}
	return errors.Join(errs...)
}
