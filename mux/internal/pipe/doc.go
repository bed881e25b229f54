// Package pipe is one end of a lane: a resumable pair of byte strings, one each way, that outlives its connections.
//
// A string is all counted records that a side has sent, headers included, from the lane's first one on. What was sealed
// is kept in a log until the peer has named it as received, so that a connection's death loses, repeats and reorders
// nothing: the next connection goes on where the other side says it is. A pipe knows the headers of records and no
// streams. It dials and accepts nothing: who owns it gives it connections whose HELLOs are through, one at a time.
//
//	Append      a record into the open chunk of a place, urgent or bulk (place.go)
//	Flush       by the caller where that needs no waiting, else by the writer, else when the gap is over (flush.go)
//	gather      owed state, then urgent, then bulk become a batch: sealed, and log from here on (gather.go, log.go)
//	write       the batch's pieces with one system call (write.go)
//	== connection ==
//	readLoop    one read, its records decoded and handled (read.go)
//
// One lock guards the sending side. It is exported to the layer above, whose streams stay on one lane and keep their
// sending state under it too: a record costs one lock. Nothing above is called with it held, but Skips.
package pipe
