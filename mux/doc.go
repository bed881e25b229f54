// Package mux carries the streams of many responses over the lanes of a link.
//
// The worker side is a [WorkerNode]: it accepts connections, and every response it writes is an [OutStream]. The
// frontend side is a [FrontendNode]: it dials connections, mints terms, and every response it reads is an [InStream]. A
// stream stays on one lane for its life. A lane is a resumable pair of byte strings that outlives its connections, so
// streams know nothing of them. The way of a token:
//
//	OutStream.TryPut       checks the window (output.go)
//	OutStream.data         chooses the place: urgent, bulk, or the stream's turn (outstream.go)
//	Pipe.Append            into the chunk that the next write sends and that stays as log (internal/pipe/place.go)
//	WorkerNode.Flush           once a pass, each lane that has something: Pipe.Flush (internal/pipe/flush.go)
//	Pipe.gather            seals a batch (internal/pipe/gather.go)
//	Pipe.writeInline       or writeLoop: one vectored write (internal/pipe/write.go)
//	== transport ==
//	Pipe.readLoop          one read (internal/pipe/read.go)
//	Pipe.decode            its records
//	inLane.Record          finds the stream of the slot (inlane.go)
//	InStream.data          checks the window and keeps the record (inrecord.go)
//	inLane.BatchDone       after the read, each stream that got something
//	InStream.deliver       one sink call or one wake (insink.go, inpull.go)
//
// Credit, cancel and liveness travel back through the same lanes. Package dial keeps a frontend's lanes connected,
// package accept a worker's. docs/wire.md specifies the protocol.
//
// Locks, in the order in which they may be taken: node, link, stream, pipe. At the worker the pipe's lock is the
// stream's. No lock is held across I/O, a callback or a channel send. Two goroutines per connection (reader, writer),
// one keeper per lane at the frontend, one ticker per WorkerNode or FrontendNode, none per stream.
package mux
