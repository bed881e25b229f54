// Package transport is the contract between the mux and what carries its bytes.
//
// A transport gives lanes: ordered, reliable, bidirectional byte streams between two nodes, each from a socket of its
// own. It knows nothing of records, streams or batches. The mux is written once against this contract; the packages
// tcp (plain and TLS), quic and memory implement it, and package transporttest holds all of them to one behaviour.
package transport
