// Package refplane is the bare response planes that Laneway is measured against: the same transports, the same way of
// the terms inside the request, and none of the mux. Each leaves an idea out, so that the effect of that idea can be
// shown.
//
//   - PerResponse: the worker dials the frontend for each response and writes each record to that connection, from a
//     goroutine of the response; a goroutine of the frontend reads it. Over tcp and tls only.
//   - PerRecord: one connection from each frontend to each worker process; each record is a write of its own.
//   - Batched: one connection; what a flush leaves is one write. With an Interval, writes are that far apart (a fixed
//     interval, as batching by a timer has it).
//
// None has windows, resumption, liveness or a second lane: a response whose consumer is slow grows in memory up to a
// bound and then ends as lost, and a connection that dies ends its responses as lost; with PerResponse, a worker that
// dies before it has called home leaves its response to its consumer's timeout. STOP exists, so that a run can end. It
// is for measurements, on networks that are trusted.
//
// A connection carries frames, big-endian: length u32 of what follows, kind u8, id u64, body. A frontend numbers its
// responses by slot (u32) and generation (u32), so that neither end looks a response up in a map.
package refplane
