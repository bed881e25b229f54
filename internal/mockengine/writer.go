package mockengine

import "errors"

// ErrWindowFull is what Writer.TryPut returns when the response's window is full.
var ErrWindowFull = errors.New("mockengine: window full")

// Writer is what an engine needs of a response.
type Writer interface {
	TryPut(rec []byte) error
	OnWritable(fn func())
	Err() error
	Stopping() bool
	Complete(trailer []byte) error
	Fail(f Failure) error
}

// Failure says how a response failed.
type Failure struct {
	Code      uint16
	Text      string
	Retryable bool
	Trailer   []byte
}

// CodeInternal is the code of an engine's own failures.
const CodeInternal = 1
