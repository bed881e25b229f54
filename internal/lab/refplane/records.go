package refplane

// Records holds records that nobody has taken, one behind the other in one buffer. Two buffers change places, so that
// taking copies nothing. The caller has a lock around all but Batch.
type Records struct {
	buf  []byte
	ends []int // of each record

	out   []byte // what was taken, of which Batch is
	outAt []int
	batch [][]byte
}

// Add copies a record.
func (r *Records) Add(rec []byte) {
	r.buf = append(r.buf, rec...)
	r.ends = append(r.ends, len(r.buf))
}

// Bytes is how much was added and not taken.
func (r *Records) Bytes() int { return len(r.buf) }

// Empty says whether nothing was added that was not taken.
func (r *Records) Empty() bool { return len(r.ends) == 0 }

// Take moves what was added to where Batch finds it, in place of what was taken before, and says whether that was
// something.
func (r *Records) Take() bool {
	r.out, r.buf = r.buf, r.out[:0]
	r.outAt, r.ends = r.ends, r.outAt[:0]
	return len(r.outAt) > 0
}

// Batch are the records that the last Take has moved, valid until the next one. It belongs to who has called Take.
func (r *Records) Batch() [][]byte {
	r.batch = r.batch[:0]
	at := 0
	for _, end := range r.outAt {
		r.batch = append(r.batch, r.out[at:end:end])
		at = end
	}
	return r.batch
}
