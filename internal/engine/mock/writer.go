package mock

import "github.com/laneway-ai/laneway/responseplane"

// Writer is what an engine needs of a response: a *responseplane.Writer, or a scripted one in tests. The engine calls it from one goroutine.
type Writer interface {
	// TryPut takes a record, which it copies, or says responseplane.ErrWindowFull.
	TryPut(rec []byte) error
	// OnWritable sets what is called after each ErrWindowFull, once, when there is room again or the response has ended.
	OnWritable(fn func())
	// Err is nil while records are wanted.
	Err() error
	// Stopping says whether the response is to end early.
	Stopping() bool
	// Complete and Fail end the response.
	PutComplete(trailer []byte) error
	Fail(f responseplane.Failure) error
}

var _ Writer = (*responseplane.Writer)(nil)
