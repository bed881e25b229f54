// Package responseplane is the public face of the response plane: workers stream the records of responses back to
// frontends over lanes.
//
// A worker process makes one [Worker], however many engines it hosts, listens, and publishes its [Descriptor]. A
// frontend makes one [Frontend], learns of workers (by a registry with [Frontend.Follow], or by itself with
// [Frontend.AddPeer]), and opens responses: with [Frontend.Open], which routes, delivers and retries, or with
// [Frontend.Mint] when it brings its own request path. A request carries the response's terms; with them the worker
// writes at once ([Worker.Attach]): there is no round trip before the first token.
//
// Buffers: a record given to a [Writer] is copied and may be reused at once. A record taken from a [Response] belongs
// to it and is valid until the next call on it.
package responseplane
