// Package serving is what a frontend and a worker say to each other through the plane, which carries it unread: the
// request, the records of its answer and the trailer of its end. It knows no engine and no HTTP
// library; docs/serving.md is the specification, and the golden vectors in testdata show its bytes.
//
// A worker reads a Request and writes an Answer; a frontend writes a Request and reads with a Decoder. What both
// need to know of an API (its last event, its errors) is a Path and its Dialect.
package serving
