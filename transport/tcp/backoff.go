package tcp

import "time"

// How long the accept loop waits after an error such as EMFILE: it doubles while the errors go on.
const (
	backoffFirst = 5 * time.Millisecond
	backoffMost  = time.Second
)

// backoff is an episode of accept errors.
type backoff struct{ wait time.Duration }

// next says how long to wait and whether this is the first error of an episode.
func (b *backoff) next() (wait time.Duration, first bool) {
	first = b.wait == 0
	b.wait = min(max(2*b.wait, backoffFirst), backoffMost)
	return b.wait, first
}

// over ends an episode and says whether there was one.
func (b *backoff) over() bool {
	was := b.wait != 0
	b.wait = 0
	return was
}
