// Package transportbench measures messages over lanes, without the mux: one at a time, 64 in flight and pipelined, over
// one lane and several, over several ports and over one port that sockets share. Two sides, in one process or in two: a
// server makes what a cell of a table asks for, a client sends. They agree over a control connection of plain TCP,
// which carries nothing that is measured.
//
// On a lane a message is a head and its body: length u32 of the body, kind u8. The server sends a message of kind echo
// back as it came, counts those of kind count, answers fin with how many messages and bytes it has counted since the
// last one (two u64), and answers send, which holds a number and a size (two u32), with that many messages of kind
// count and a fin. That is the direction of responses: a lane's socket, at who dials, is read no faster than the QUIC
// library takes packets in, while an endpoint's, which many lanes share, is not held back by one of them.
package transportbench
