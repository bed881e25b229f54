// Package mux carries the streams of many responses over the lanes of a link.
//
// The worker side is a [Sender]: it accepts lanes, and every response it writes is an [OutStream]. The frontend side is a
// [Receiver]: it dials lanes, mints terms, and every response it reads is an [InStream]. A record's way:
//
//	OutStream.TryPut   append to the stream's ring (outstream.go, ring.go); the stream stands in its lane's list (queue.go)
//	Sender.Flush       wakes each lane that has something (lane.go)
//	lane.gather        takes the lists, urgent before bulk, into one batch (batch.go); one write
//	== transport ==
//	lane.read          one read, its records decoded and handled (reader.go)
//	InStream.append    into the stream's buffer (instream.go); one wake, or one sink call, per stream and read
//
// Credit, cancel and liveness travel back through the same lanes. docs/wire.md specifies the protocol.
//
// Locks, in the order in which they may be taken: receiver or sender, link, stream, lane. No lock is held across I/O, a
// callback or a channel send. Two goroutines per lane (reader, writer), one ticker per Sender or Receiver, none per stream.
package mux
