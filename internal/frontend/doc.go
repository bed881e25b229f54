// Package frontend is the HTTP side of the frontend: it reads requests of the OpenAI API, has a Backend open a response
// for each, and writes the response's records as server-sent events or as one reply.
//
// The status line waits for the first record, so a failure before it keeps its real status. A failure after it is an
// event with an error object, then [DONE]: a truncated answer never looks complete. All records that are ready go out
// in one write.
//
// Who writes is OutPath's: a stream that can have a sink is written by the goroutine that brings its records, so that a
// token wakes nobody here, and a client that does not take its bytes is left to its request's goroutine, so that it
// delays nobody.
package frontend
