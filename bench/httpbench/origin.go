package httpbench

import (
	"errors"
	"io"

	"github.com/laneway-ai/laneway/internal/frontend"
)

// origin says where a stream's records come from, and does what a bench has no need of.
type origin struct{ worker, plane string }

func (o origin) Worker() string   { return o.worker }
func (o origin) NodeName() string { return o.worker }
func (o origin) Plane() string    { return o.plane }
func (o origin) Lane() int        { return 0 }
func (o origin) Retries() int     { return 0 }

// lost is how the HTTP side learns of a response that ended with err; io.EOF stays what it is.
func (o origin) lost(err error) error {
	var end *frontend.EndError
	if err == nil || err == io.EOF || errors.As(err, &end) {
		return err
	}
	return &frontend.EndError{End: frontend.EndLost, Text: "the way to the worker has failed", Worker: o.worker,
		Err: err}
}

var errKilled = &frontend.EndError{End: frontend.EndKilled, Text: "killed by the frontend"}
