package frontend

import (
	"context"
	"errors"
)

// OutPath says who writes the events of a stream.
type OutPath string

const (
	// OutAuto is OutRing where the kernel has io_uring and lets it be used, else OutInline. New finds out.
	OutAuto OutPath = "auto"
	// OutRing is OutInline, with all writes of a pass sent by one submission to an io_uring: for a PassStream, over
	// HTTP/1 without TLS. Everything else is written one by one, or pulled, as by OutInline.
	OutRing OutPath = "io_uring"
	// OutInline has the goroutine that brings the records write them where that can be done without waiting: over
	// HTTP/1 (with and without TLS), for streams that are a SinkStream, to clients that take their bytes. Everything
	// else is pulled.
	OutInline OutPath = "inline"
	// OutPull wakes the request's goroutine for the records.
	OutPull OutPath = "pull"
)

// SinkStream is a Stream that can give its records away as they come, without waking a goroutine for them.
type SinkStream interface {
	Stream
	// OnRecords sets the sink. It is called with all records that are ready, in order, never twice at a time; they are
	// valid during the call. The last call has the end in err (io.EOF for a complete response). When it returns false
	// ("not now"), its records stay, and NextBatch gives them and all later ones until it finds nothing.
	//
	// With a sink NextBatch does not wait, except for a call of the sink that is under way: no records and no error say
	// that the sink has the stream again. Records that are there when OnRecords is called are NextBatch's.
	OnRecords(sink func(records [][]byte, err error) bool)
}

// errUnwritten is a feed's error when a write to the client failed.
var errUnwritten = errors.New("frontend: the client could not be written to")

// Pass is one read of a lane, in which the sinks of several streams are called one after the other.
type Pass interface {
	// Value is what Defer was last given in this pass, nil before.
	Value() any
	// Defer has after called once all sinks of the pass have been, on the same goroutine. It is called at most once in
	// a pass.
	Defer(value any, after func())
}

// PassStream is a SinkStream whose sink also learns of the pass that it is called in, so that the writes of a pass can
// be sent with one system call. OnPass is used instead of OnRecords, whose contract it has.
type PassStream interface {
	SinkStream
	OnPass(sink func(pass Pass, records [][]byte, err error) bool)
}

// feed is where an exchange's goroutine has its records from. Its next is like Stream.NextBatch, except that records
// may also have been written without it: it then returns what is left to do.
type feed interface {
	next(ctx context.Context) ([][]byte, error)
	// quiet has all further records come through next: nobody is there to write them to.
	quiet()
}

// pulled is the feed that wakes the goroutine for every record.
type pulled struct{ Stream }

func (p pulled) next(ctx context.Context) ([][]byte, error) { return p.NextBatch(ctx) }
func (pulled) quiet()                                       {}
