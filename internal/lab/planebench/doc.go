// Package planebench drives the response plane between OS processes, without HTTP: it is what `loadgen plane` does.
//
// The parent starts its own program again as worker processes, which host engines, and as frontend processes, which
// hold the load. Children talk with the parent in JSON lines over standard input and output; requests go from frontend
// to worker over one plain TCP connection of their own, with the terms in them, as those of an embedding frontend
// would. There is no etcd and no NATS. A child ends when its standard input does, so none outlives the parent.
//
// # Load
//
// An engine makes a pass each inter-token latency: one record on each of its running responses, then one Flush. Passes
// of the engines are spread over the interval. A pass that is late by more than an interval is counted and not made up
// for. The load is a closed loop: a slot opens its next response, at the same engine, when one has ended. The first
// responses of the slots have lengths spread over 1..osl, so responses do not end in waves. A new request reaches its
// engine just after a pass, so the floor of TTFT is one pass interval. A response that fails is counted and its slot
// stays empty.
//
// # Baselines
//
// Beside each arm of ours, bare planes can be run over the same transport (package refplane): each leaves an idea out,
// so the ratio of its CPU to ours, pair by pair, is what that idea is worth. The batched one has no windows, cancel,
// failover or gap: it is the yardstick for what those cost.
//
// # What is measured
//
// The window begins when the warm-up responses have ended (or, as asked for, after a time, or when every slot has ended
// its first response). CPU is getrusage of each process over the window. Responses in the window = records taken in it
// / records per response. TTFT runs from before Mint to the first record in the consumer's hands; a response that was
// opened in the window and has no record at its end counts with its age. ITL is (last - first) / (records - 1) of each
// response of 32 records or more that ended in the window. Delivery delay is record taken - pass begun, by
// CLOCK_MONOTONIC of the one host, which each record carries; it comes from a histogram whose buckets are 1 part in 128
// wide. The other percentiles are exact.
//
// Every record carries its response's id, its number, and a check word over both, the stamp and the length, with which
// the rest is filled. Order, number, length and content are checked when it is taken. The worker's END brings how many
// it made.
//
// # run.json
//
// Schema "laneway.plane/1"; see Report. What was not measured is absent.
package planebench
