// Package transportbench measures messages over lanes, without the mux: one at a time, 64 in flight and pipelined, over one lane and several, over several
// ports and over one port that sockets share. Two sides, in one process or in two: a server makes what a cell of a table asks for, a client sends. They agree over
// a control connection of plain TCP, which carries nothing that is measured.
//
// On a lane a message is a head and its body: length u32 of the body, kind u8. The server sends a message of kind echo back as it came, counts those of
// kind count, and answers fin with how many messages and bytes it has counted since the last one (two u64).
package transportbench
